// Command torture breaks a cluster of real processes from outside, and judges from what they
// noted whether anything ever ran twice. Package torture beside it says how.
package main

import "github.com/holdfast-go/holdfast/test/torture/torture"

func main() { torture.Main() }
