package db

import "strings"

// A text of the database has no NUL.
var (
	escaper   = strings.NewReplacer(`\`, `\\`, "\x00", `\0`)
	unescaper = strings.NewReplacer(`\\`, `\`, `\0`, "\x00")
)

// Escape makes a text of s that the database can hold.
func Escape(s string) string { return escaper.Replace(s) }

// Unescape undoes Escape.
func Unescape(s string) string { return unescaper.Replace(s) }

// Array makes an array of what f returns for each. It is never nil, which would be NULL.
func Array[T, U any](of []T, f func(T) U) []U {
	all := make([]U, len(of))
	for i, x := range of {
		all[i] = f(x)
	}
	return all
}
