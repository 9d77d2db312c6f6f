package remoting_test

import (
	"fmt"
	"testing"
)

// One node tells another, by how many messages travel at once.
func BenchmarkTell(b *testing.B) {
	for _, size := range []int{8, 1024} {
		for _, limit := range []int{256 << 10, 1 << 20, 4 << 20} {
			b.Run(fmt.Sprintf("bytes=%d/limit=%dKiB", size, limit>>10), func(b *testing.B) {
				env := fmt.Sprintf("HOLDFAST_MAX=%d", limit)
				from, to := start(b, env), start(b, env)
				works(from, to)
				b.ResetTimer()
				from.do("burst %s %d %d", to.addr, b.N, size)
				to.expect("burst ")
			})
		}
	}
}
