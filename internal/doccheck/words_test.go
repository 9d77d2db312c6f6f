package doccheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// odd are words in whose place a sentence says better who does what.
var odd = regexp.MustCompile(`(?i)\b(nobody|whoever|whosoever|anew|in vain|of users'?|of the user's|of theirs|comes? of|` +
	`is told|are told|is to be|what else|for want of|whichever|likewise)\b`)

// The most odd words in 1000, of pages and of comments in code that ships. They only fall.
const (
	oddInPages    = 0.1
	oddInComments = 0.1
)

// frequency counts odd words.
type frequency struct{ words, odds int }

func (f *frequency) add(text string) (found []string) {
	found = odd.FindAllString(text, -1)
	f.words += len(strings.Fields(text))
	f.odds += len(found)
	return found
}

func (f *frequency) per1000() float64 { return 1000 * float64(f.odds) / float64(max(1, f.words)) }

// TestPagesAreInPlainWords: reports of runs are not edited later, and do not count.
func TestPagesAreInPlainWords(t *testing.T) {
	var f frequency
	for _, page := range documents(t) {
		if strings.Contains(page, "/lab/reports/") {
			continue
		}
		if found := f.add(read(t, page)); len(found) > 0 {
			t.Logf("%s: %q", strings.TrimPrefix(page, root+"/"), found)
		}
	}
	t.Logf("%d of %d words, %.2f in 1000", f.odds, f.words, f.per1000())
	require.LessOrEqual(t, f.per1000(), oddInPages, "pages have more odd words")
}

func TestCommentsAreInPlainWords(t *testing.T) {
	var f frequency
	product(t, func(_ string, code *ast.File) {
		if ast.IsGenerated(code) {
			return
		}
		for _, group := range code.Comments {
			for _, c := range group.List {
				f.add(c.Text)
			}
		}
	})
	t.Logf("%d of %d words, %.2f in 1000", f.odds, f.words, f.per1000())
	require.LessOrEqual(t, f.per1000(), oddInComments, "comments have more odd words")
}

// TestChangesAreShort until the first version: till then CHANGELOG.md says what there is.
func TestChangesAreShort(t *testing.T) {
	changes := read(t, root+"/CHANGELOG.md")
	require.True(t, regexp.MustCompile(`(?m)^## v?\d`).MatchString(changes) || strings.Count(changes, "\n") <= 40, "CHANGELOG.md has more than 40 lines")
}

// docLines is how long the documentation of a package may be: a reader is done in three minutes.
const docLines = 40

func TestPackageDocsAreShort(t *testing.T) {
	lines := map[string]int{}
	for _, file := range sources(t, ".") {
		set := token.NewFileSet()
		code, err := parser.ParseFile(set, file, nil, parser.PackageClauseOnly|parser.ParseComments)
		require.NoError(t, err)
		if code.Doc != nil {
			folder := path.Dir(strings.TrimPrefix(filepath.ToSlash(file), root+"/"))
			lines[folder] += set.Position(code.Doc.End()).Line - set.Position(code.Doc.Pos()).Line + 1
		}
	}
	for folder, n := range lines {
		require.LessOrEqual(t, n, docLines, "the documentation of %s has %d lines", folder, n)
	}
}
