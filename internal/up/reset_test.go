package up

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// things is a remover of named things, some of which refuse to go.
func things(part string, names []string, stubborn int) Remover {
	return Remover{Part: part, Remove: func(context.Context) (removed []string, err error) {
		if stubborn > 0 {
			stubborn--
			return names, nil // says so, but they stay
		}
		removed, names = names, nil
		return removed, nil
	}}
}

func resetOptions(t *testing.T) (Options, *strings.Builder) {
	t.Helper()
	var out strings.Builder
	o := Options{DataDir: filepath.Join(t.TempDir(), "data"), RunDir: filepath.Join(t.TempDir(), "run"), Out: &out}
	for _, dir := range []string{o.DataDir, o.RunDir} {
		if err := os.MkdirAll(filepath.Join(dir, "deep/inside"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return o, &out
}

func TestResetSaysWhatItRemovesAndThatNothingIsLeft(t *testing.T) {
	o, out := resetOptions(t)
	removers := []Remover{things("links", []string{"link a", "link b"}, 0), things("mounts", nil, 0)}
	if err := Reset(t.Context(), o, removers); err != nil {
		t.Fatal(err)
	}
	want := "removed link a\nremoved link b\nremoved " + o.RunDir + "\nremoved " + o.DataDir + "\nnothing is left (4 removed)\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	out.Reset()
	if err := Reset(t.Context(), o, removers); err != nil || out.String() != "nothing is left (0 removed)\n" {
		t.Errorf("again: got %q, %v", out, err)
	}
}

func TestResetFailsIfSomethingIsLeft(t *testing.T) {
	o, out := resetOptions(t)
	err := Reset(t.Context(), o, []Remover{things("links", []string{"link a"}, 1)})
	if err == nil || !strings.Contains(err.Error(), "1 things were still there after the reset; run it again") || strings.Contains(out.String(), "nothing is left") {
		t.Errorf("got %v and %q", err, out)
	}
}

func TestResetGoesOnAfterAFailureAndKeepsTheData(t *testing.T) {
	o, out := resetOptions(t)
	broken := Remover{Part: "containers", Remove: func(context.Context) ([]string, error) { return nil, errors.New("device or resource busy") }}
	err := Reset(t.Context(), o, []Remover{broken, things("links", []string{"link a"}, 0)})
	if err == nil || !strings.Contains(err.Error(), "containers: device or resource busy") || out.String() != "removed link a\n" {
		t.Errorf("got %v and %q", err, out)
	}
	if _, err := os.Stat(o.DataDir); err != nil { // what is in it says what is left to remove
		t.Errorf("data directory after a failed reset: %v", err)
	}
}

func TestReadsEveryDocumentOfAManifest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.yaml")
	text := "# a comment\n---\nkind: A\napiVersion: v1\nmetadata: {name: one}\n---\n\n---\n{\"kind\": \"B\", \"apiVersion\": \"v1\", \"metadata\": {\"name\": \"two\", \"namespace\": \"n\"}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	objs, err := readManifest(file)
	if err != nil || len(objs) != 2 || objs[0].GetName() != "one" || namespaceOf(objs[0]) != "default" || namespaceOf(objs[1]) != "n" {
		t.Errorf("got %v, %v", objs, err)
	}
	if err := os.WriteFile(file, []byte("a: [b"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readManifest(file); err == nil || !strings.Contains(err.Error(), "read manifest "+file) {
		t.Errorf("broken manifest: got %v", err)
	}
}

// TestResetEmptiesWhatALinkNames and leaves the link, which somebody else made.
func TestResetEmptiesWhatALinkNames(t *testing.T) {
	o, out := resetOptions(t)
	target := o.DataDir
	o.DataDir = filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(target, o.DataDir); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{o.DataDir: target, o.DataDir + "/not/yet": target + "/not/yet", target + "/../x": filepath.Dir(target) + "/x"} {
		if got, err := RealDir(dir); err != nil || got != want {
			t.Errorf("real path of %s: got %s, %v, want %s", dir, got, err, want)
		}
	}
	if err := Reset(t.Context(), o, nil); err != nil || !strings.Contains(out.String(), "removed "+o.DataDir+"\n") {
		t.Errorf("got %q, %v", out, err)
	}
	if left, err := os.ReadDir(target); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Lstat(o.DataDir); err != nil {
		t.Errorf("the link: %v", err)
	}
}

// TestInterruptedResetSaysHowToGoOn and keeps the data until the rest is gone.
func TestInterruptedResetSaysHowToGoOn(t *testing.T) {
	o, _ := resetOptions(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	err := Reset(ctx, o, []Remover{{Part: "links", Remove: func(context.Context) ([]string, error) {
		cancel(errors.New("interrupt signal received"))
		return []string{"link a"}, nil
	}}})
	if want := "interrupted: part of the cluster is removed, kemudi reset removes the rest (interrupt signal received)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := os.Stat(o.DataDir); err != nil {
		t.Error(err)
	}
}
