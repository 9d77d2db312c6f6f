// Package stage is what the demonstrations have in common, beside what they show: the
// command line, the timeline that is printed, the verdict, and, for nodes that are
// processes of their own, an etcd, child processes and what they report, the clock
// of the machine, fenced writes, and an audit of what etcd applied.
package stage
