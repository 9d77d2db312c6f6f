package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// mutate returns the new text of each file that the edits change.
func mutate(root string, edits []edit) (map[string]string, error) {
	replace := map[string][]string{}
	source := map[string]string{}
	for _, e := range edits {
		if source[e.file] == "" {
			text, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			source[e.file] = string(text)
		}
		if n := strings.Count(source[e.file], e.old); e.old == "" || n != 1 {
			return nil, fmt.Errorf("%s: the text to replace must occur exactly once, but occurs %d times: %q", e.file, n, e.old)
		}
		if e.new == e.old {
			return nil, fmt.Errorf("%s: the edit changes nothing: %q", e.file, e.old)
		}
		replace[e.file] = append(replace[e.file], e.old, e.new)
	}
	for file, pairs := range replace {
		source[file] = strings.NewReplacer(pairs...).Replace(source[file])
	}
	return source, nil
}

// builder builds test binaries in a directory of its own.
type builder struct {
	root, dir string
	overlay   string // file for go test -overlay; "" = the source as it is
}

// plant returns a builder that builds with the edits.
func plant(root string, edits []edit) (*builder, error) {
	files, err := mutate(root, edits)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "holdfast-mutant")
	if err != nil {
		return nil, err
	}
	b := &builder{root: root, dir: dir, overlay: filepath.Join(dir, "overlay.json")}
	if err := b.write(files); err != nil {
		b.remove()
		return nil, err
	}
	return b, nil
}

// write writes the edited copies, and the overlay that names them.
func (b *builder) write(files map[string]string) error {
	var o struct{ Replace map[string]string }
	o.Replace = map[string]string{}
	for file, text := range files {
		to := filepath.Join(b.dir, strconv.Itoa(len(o.Replace))+filepath.Ext(file))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return err
		}
		o.Replace[filepath.Join(b.root, file)] = to
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return os.WriteFile(b.overlay, text, 0o600)
}

func (b *builder) remove() { _ = os.RemoveAll(b.dir) }

// moduleOf returns the folder of the module that a package is in, of all modules under root, and
// the package's folder there.
func moduleOf(root, pkg string) (module, at string) {
	for module, at = pkg, "."; module != "."; module, at = filepath.Dir(module), filepath.Join(filepath.Base(module), at) {
		if _, err := os.Stat(filepath.Join(root, module, "go.mod")); err == nil {
			break
		}
	}
	return module, at
}

// build makes the test binary of a package, once.
func (b *builder) build(pkg string) (string, error) {
	bin := filepath.Join(b.dir, strings.ReplaceAll(pkg, "/", "-")+".test")
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	module, at := moduleOf(b.root, pkg)
	cmd := exec.Command("go", "test", "-c", "-overlay", b.overlay, "-o", bin, "./"+at)
	cmd.Dir = filepath.Join(b.root, module)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go test -c ./%s: %w\n%s", pkg, err, out)
	}
	return bin, nil
}
