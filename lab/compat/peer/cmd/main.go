// The node of lab/compat as a program of its own. It is built from an older version of
// the library; the present one is run by the test itself.
package main

import "github.com/holdfast-go/holdfast/lab/compat/peer"

func main() { peer.Main() }
