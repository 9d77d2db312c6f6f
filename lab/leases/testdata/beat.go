//go:build linux

// Command beat is the program that scenario guard has others run: every two milliseconds it appends its
// process, its token and the machine's time to a file. It is small, as it is started often.
package main

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	f, err := os.OpenFile(os.Args[1], os.O_WRONLY|os.O_APPEND, 0)
	token := cmp.Or(os.Getenv("HOLDFAST_TOKEN"), "0")
	for began := time.Now(); err == nil && time.Since(began) < 5*time.Minute; time.Sleep(2 * time.Millisecond) {
		var t unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // every Linux has it
		_, err = fmt.Fprintf(f, "%d %s %d\n", os.Getpid(), token, t.Nano())
	}
	os.Exit(9)
}
