package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// player runs test binaries.
type player struct {
	options
	root, bin string
	built     map[string]string
}

func (p *player) close() { _ = os.RemoveAll(p.bin) }

// history is one that is replayed.
type history struct {
	kind
	seed    uint64
	without string // steps to leave out
	what    string // how it failed
}

// String is what -replay reads.
func (h history) String() string {
	s := fmt.Sprintf("%s:%s:%d", h.pkg, h.test, h.seed)
	if h.without != "" {
		s += ":" + h.without
	}
	return s
}

// parse is the inverse of String.
func parse(s string) (h history, err error) {
	parts := strings.Split(s, ":")
	if len(parts) < 3 || len(parts) > 4 {
		return h, fmt.Errorf("%q: want package:test:seed or package:test:seed:steps", s)
	}
	for _, k := range kinds {
		if k.pkg == parts[0] && k.test == parts[1] {
			h.kind = k
		}
	}
	if h.kind == (kind{}) {
		return h, fmt.Errorf("%q: there is no history %s %s", s, parts[0], parts[1])
	}
	if h.seed, err = strconv.ParseUint(parts[2], 10, 64); err != nil || h.seed == 0 {
		return h, fmt.Errorf("%q: the seed %q is no number above 0", s, parts[2])
	}
	if len(parts) == 4 {
		h.without = parts[3]
	}
	return h, nil
}

// patience is how long one process may take.
const patience = 20 * time.Minute

// result is what a test binary said.
type result struct {
	failed bool
	output string
}

// test runs the test of k.
func (p *player) test(ctx context.Context, k kind, args ...string) (result, error) {
	bin, err := p.build(k.pkg)
	if err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience+time.Minute)
	defer cancel()
	// What spins for ever at one moment of fake time must not take all memory with it.
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -v 16000000; exec "$0" "$@"`, bin, "-test.run", "^" + k.test + "$",
		"-test.timeout", patience.String()}, args...)...)
	cmd.Dir = filepath.Join(p.root, k.pkg)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return result{}, context.Cause(ctx)
	case err != nil && !errors.As(err, &exit):
		return result{}, err
	case strings.Contains(out.String(), "no tests to run"):
		return result{}, fmt.Errorf("%s: there is no such test", k)
	}
	return result{err != nil, out.String()}, nil
}

// build makes the test binary of a package, once.
func (p *player) build(pkg string) (string, error) {
	if bin := p.built[pkg]; bin != "" {
		return bin, nil
	}
	bin := filepath.Join(p.bin, strings.ReplaceAll(pkg, "/", "-"))
	cmd := exec.Command("go", "test", "-c", "-overlay", p.overlay, "-o", bin, "./"+pkg)
	cmd.Dir = p.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go test -c ./%s: %w\n%s", pkg, err, out)
	}
	p.built[pkg] = bin
	return bin, nil
}

var failedSeed = regexp.MustCompile(`(?m)^\s*--- FAIL: \S+/seed_(\d+)`)

// play plays n histories of one kind, some in each process, and tells which failed.
func (p *player) play(ctx context.Context, k kind, n int) (failing []history, took time.Duration, err error) {
	began := time.Now()
	each := p.historiesEach
	if each == 0 {
		each = 200
		if k.share > 0.2 || k.pkg == "internal/route" {
			each = 2000
		}
	}
	first := p.first
	if first == 0 {
		first = uint64(rand.Uint32()) + 1
	}
	for done := 0; done < n; done += each {
		count := min(each, n-done)
		from := first + uint64(done)
		r, err := p.test(ctx, k, "-"+k.flags()+".first="+strconv.FormatUint(from, 10), "-"+k.flags()+".histories="+strconv.Itoa(count))
		if err != nil {
			return nil, 0, err
		}
		if !r.failed {
			continue
		}
		seeds := failedSeed.FindAllStringSubmatchIndex(r.output, -1)
		if len(seeds) == 0 {
			return nil, 0, fmt.Errorf("%s, seeds from %d: no history failed, but their process did:\n%s", k, from, tail(r.output, 40))
		}
		for i, at := range seeds {
			seed, _ := strconv.ParseUint(r.output[at[2]:at[3]], 10, 64)
			end := len(r.output)
			if i+1 < len(seeds) {
				end = seeds[i+1][0]
			}
			failing = append(failing, history{kind: k, seed: seed, what: signature(r.output[at[0]:end])})
		}
	}
	return failing, time.Since(began), nil
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

var (
	said     = regexp.MustCompile(`(?m)(?:FAILED: |^\s+\w+_test\.go:\d+: |^\s+Error:\s+|^panic: )(.*\S)\s*$`)
	prefix   = regexp.MustCompile(`^seed \d+( at [\d:.]+)?: `)
	changing = regexp.MustCompile(`0x[0-9a-f]+|[0-9a-f]{16,}|\d+(\.\d+)?`)
)

// signature is how a history failed, without what differs from run to run.
func signature(output string) string {
	for _, m := range said.FindAllStringSubmatch(output, -1) {
		text := strings.TrimSpace(changing.ReplaceAllString(prefix.ReplaceAllString(m[1], ""), "#"))
		if text != "" && !strings.HasPrefix(text, "seed") && !strings.HasPrefix(text, "#s ") {
			return text[:min(len(text), 40)]
		}
	}
	return "?"
}
