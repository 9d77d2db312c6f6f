// Package examples has programs to begin with, each one file that is read from top to
// bottom: quickstart, singleton, sharding, leader and cron. What singletons and shards do under
// SIGKILL and SIGSTOP is shown by `go run -C lab . run scheduler`.
package examples
