package db

import (
	"strconv"
	"strings"
)

// A text of the database has no NUL.
var (
	escaper   = strings.NewReplacer(`\`, `\\`, "\x00", `\0`)
	unescaper = strings.NewReplacer(`\\`, `\`, `\0`, "\x00")
)

// Escape makes a text of s that the database can hold.
func Escape(s string) string { return escaper.Replace(s) }

// Unescape undoes Escape.
func Unescape(s string) string { return unescaper.Replace(s) }

// Arrays are sent as the texts of them, which every driver can send.

var quoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// Array makes an array of n elements; f returns nil for NULL.
func Array(n int, f func(i int) *string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if t := f(i); t == nil {
			b.WriteString("NULL")
		} else {
			b.WriteByte('"')
			_, _ = quoter.WriteString(&b, *t)
			b.WriteByte('"')
		}
	}
	b.WriteByte('}')
	return b.String()
}

// Texts is an array of text.
func Texts[T any](of []T, f func(T) string) string {
	return Array(len(of), func(i int) *string { t := f(of[i]); return &t })
}

// Numbers is an array of bigint.
func Numbers[T any](of []T, f func(T) int64) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, x := range of {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(f(x), 10))
	}
	b.WriteByte('}')
	return b.String()
}
