//go:build unix

package etcdtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Metrics are the samples a member exports, by series as it is written there:
// the name, then the labels in braces if it has any.
type Metrics map[string]float64

// Sum adds up all series of a name whose labels include the given ones, each
// written as name="value". No such series: 0.
//
//	m.Sum("grpc_server_started_total", `grpc_method="LeaseKeepAlive"`)
func (m Metrics) Sum(name string, labels ...string) float64 {
	sum := 0.0
series:
	for s, v := range m {
		base, rest, _ := strings.Cut(s, "{")
		if base != name {
			continue
		}
		for _, l := range labels {
			// Between its neighbours: method="Put" is no part of grpc_method="Put".
			if !strings.Contains(","+strings.TrimSuffix(rest, "}")+",", ","+l+",") {
				continue series
			}
		}
		sum += v
	}
	return sum
}

const maxMetrics = 16 << 20

// Metrics reads the member's /metrics, past its proxy. It needs no quorum and no
// user; a member that is stopped does not answer.
func (m *Member) Metrics(ctx context.Context) (Metrics, error) {
	res, err := m.get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("etcdtest: metrics of %s: %w", m.name, err)
	}
	defer res.Body.Close()
	got, err := parseMetrics(io.LimitReader(res.Body, maxMetrics))
	if err != nil {
		return nil, fmt.Errorf("etcdtest: metrics of %s: %w", m.name, err)
	}
	return got, nil
}

// parseMetrics reads the Prometheus text format, without timestamps, which etcd
// does not write.
func parseMetrics(r io.Reader) (Metrics, error) {
	m := Metrics{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		if i < 0 {
			return nil, fmt.Errorf("no sample: %.100q", line)
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("sample %.100q: %w", line, err)
		}
		m[strings.TrimSpace(line[:i])] = v
	}
	return m, lines.Err()
}
