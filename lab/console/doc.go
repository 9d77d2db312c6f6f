// Package console has tests of the console's page in a browser: Chromium, from Debian's package of
// that name, or the one at HOLDFAST_CHROMIUM. Where there is none they are skipped.
//
//	go test -C lab ./console                  every view on the fixture
//	go test -C lab ./console -run Shots -shots ../../docs
//	                                          makes docs/console.png, docs/console-timeline.png
package console
