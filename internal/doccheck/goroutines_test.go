package doccheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// alone are the files with bare go statements: how many, and why nobody waits by a
// sync.WaitGroup for what they begin.
var alone = map[string]struct {
	n   int
	why string
}{
	"backends/etcd/keepalive.go":    {1, "receives until its stream ends, with the client or its last user"},
	"backends/postgres/bell.go":     {1, "ends when no change is left to ring for"},
	"backends/postgres/watch.go":    {2, "looks for changes, and hears the bell, until the last watch has ended; a Store has no end"},
	"cmd/holdfast/guard.go":         {3, "read pipes and wait for children, until their other ends have ended; the guard is a process of its own"},
	"health/health.go":              {1, "a check may not return"},
	"internal/actors/actors.go":     {1, "runs inside of Publish, which it must not hold up"},
	"internal/boundary/boundary.go": {2, "work of users, that may not return; waits for the others"},
	"internal/inquiry/inquiry.go":   {2, "answers a question, within 2 s, eight at a time; carries an action out; a Desk has no end of its own"},
	"internal/transport/node.go":    {2, "has remote give a link up, subscribers of users come before it; tells of a link that broke"},
	"internal/transport/peer.go":    {3, "sends what is queued, for a caller that has sent enough, or that reads a link; remote may hold it up"},
	"lease/state.go":                {1, "OnLost of users, which may not return"},
	"lease/handle.go":               {1, "OnFree of users, which may not return"},
	"internal/feed/latest.go":       {1, "a follower of users, which may not return"},
	"internal/feed/queue.go":        {1, "subscribers, loggers and instruments of users; ends when nothing waits"},
	"node/stop.go":                  {2, "waits for signals, and stops the node itself; ends a stop that is of no use, and with it"},
	"remoting/link.go":              {2, "a peer that reads nothing holds one up until its connection is closed; the other makes a link, for 2 s at most"},
	"sharding/leave.go":             {1, "the last of a Region, which Stop waits for by a channel"},
	"sharding/entry.go":             {1, "Props of users, that may not return"},
	"sharding/start.go":             {1, "the control loop, whose end Start's clean-up waits for by a channel"},
	"singleton/end.go":              {1, "the last of a manager, which Stop waits for by a channel"},
}

// kits are what only tests and benchmarks are made of.
var kits = []string{
	"backends/etcd/etcdtest", "backends/postgres/internal/recycled", "backends/postgres/postgrestest", "examples", "internal/apicheck", "internal/authority",
	"internal/barelease", "internal/child", "internal/churn", "internal/compared", "internal/doccheck",
	"internal/explore", "internal/faultlink", "internal/handover/world", "internal/inputtest", "internal/labelled", "internal/memnet",
	"internal/settler", "internal/simulate", "internal/testkit", "lab", "store/faultclock", "store/faultstore", "lease/leasetest", "store/storetest", "internal/testkit/cases", "sharding/remembertest", "test", "tools",
}

// product calls f with each file of code that runs in users' processes, by its path in the
// repository.
func product(t *testing.T, f func(file string, code *ast.File)) {
	t.Helper()
	for _, name := range sources(t, ".") {
		rel, err := filepath.Rel(root, name)
		require.NoError(t, err)
		rel = filepath.ToSlash(rel)
		under := func(kit string) bool { return strings.HasPrefix(rel, kit+"/") }
		if !slices.ContainsFunc(kits, under) && !strings.HasPrefix(rel, ".") && !strings.Contains(rel, "/testdata/") {
			code, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
			require.NoError(t, err)
			f(rel, code)
		}
	}
}

// TestGoroutinesHaveAnOwner: they are begun by the Go of a sync.WaitGroup that somebody
// waits for, or stand in the list with the reason.
func TestGoroutinesHaveAnOwner(t *testing.T) {
	found := map[string]int{}
	groups, begun, waited := map[string]string{}, map[string]bool{}, map[string]bool{} // by directory and name
	product(t, func(file string, code *ast.File) {
		key := func(name string) string { return path.Join(path.Dir(file), name) }
		group := func(names []*ast.Ident, typ ast.Expr) {
			if s, ok := typ.(*ast.SelectorExpr); ok && s.Sel.Name == "WaitGroup" {
				for _, n := range names {
					groups[key(n.Name)] = file
				}
			}
		}
		ast.Inspect(code, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				found[file]++
			case *ast.Field:
				group(n.Names, n.Type)
			case *ast.ValueSpec:
				group(n.Names, n.Type)
			case *ast.CallExpr:
				s, ok := n.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				switch of := last(s.X); {
				case s.Sel.Name == "Go" || s.Sel.Name == "Add":
					begun[key(of)] = true
				case s.Sel.Name == "Wait" && of == "boundary":
					waited[key(last(n.Args[1]))] = true
				case s.Sel.Name == "Wait":
					waited[key(of)] = true
				}
			}
			return true
		})
	})
	for file, n := range found {
		require.Equal(t, alone[file].n, n, "%s: begin goroutines by the Go of a sync.WaitGroup, and wait for it; "+
			"a bare go statement needs a line in the list, with the reason", file)
	}
	for file, a := range alone {
		require.Equal(t, a.n, found[file], "%s: the list is too long", file)
		require.NotEmpty(t, a.why, file)
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		require.True(t, !begun[name] || waited[name], "%s: nobody waits for %s", groups[name], path.Base(name))
	}
	require.GreaterOrEqual(t, len(groups), 8)
}

// last is the last name of an expression such as &k.wg.
func last(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.UnaryExpr:
		return last(e.X)
	}
	return ""
}
