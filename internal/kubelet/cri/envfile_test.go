package cri

import (
	"io/fs"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/trace"
)

func TestVariablesAreReadFromFilesOfOtherContainers(t *testing.T) {
	trace.Proves(t, "KEP-3721")
	files := map[string]string{
		"good": "# comment\n\n  A='x $B \\n \"q\"' # why\nE=''\nTWO='line 1\n  # line 2\n'\nC= 'ignored'\nA='later'\r\n",
		"bare": "A='x'\nB=y\n", "space": "A ='x'", "name": "='x'", "none": "A", "open": "B=''\nA='x\ny\n", "after": "A='x'y",
	}
	const missing = "<missing>"
	for _, c := range []struct {
		name, file, key string
		optional        bool
		want, err       string
	}{
		{name: "as it stands, and the first one", file: "good", key: "A", want: `x $B \n "q"`},
		{name: "over lines", file: "good", key: "TWO", want: "line 1\n  # line 2\n"},
		{name: "empty", file: "good", key: "E", want: ""},
		{name: "empty before a blank", file: "good", key: "C", want: ""},
		{name: "no such key", file: "good", key: "X", err: `environment variable key "X" not found in file "good"`},
		{name: "no such key, optional", file: "good", key: "X", optional: true, want: missing},
		{name: "no such file", file: "gone", key: "X", err: `couldn't read env file "gone" of volume "v": file does not exist`},
		{name: "no such file, optional", file: "gone", key: "X", optional: true, want: missing},
		{name: "no quotes", file: "bare", key: "A", err: "at line 2: value must be enclosed in single quotes"},
		{name: "blank before =", file: "space", key: "A", err: "at line 1: whitespace before '=' is not allowed"},
		{name: "no name", file: "name", key: "A", err: "at line 1: empty variable name"},
		{name: "no =", file: "none", key: "A", optional: true, err: "at line 1: missing '='"},
		{name: "no end", file: "open", key: "A", err: "starting at line 2: unclosed single quote"},
		{name: "more than a value", file: "after", key: "A", err: "at line 1: unexpected content after closing quote"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := &ContainerInput{
				Pod: &v1.Pod{}, Node: &Node{},
				Container: &v1.Container{Env: []v1.EnvVar{{Name: "GOT", ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{
					VolumeName: "v", Path: c.file, Key: c.key, Optional: ptr.To(c.optional),
				}}}}},
				ReadFile: func(volume, path string) ([]byte, error) {
					text, ok := files[path]
					if volume != "v" || !ok {
						return nil, fs.ErrNotExist
					}
					return []byte(text), nil
				},
			}
			env, err := Env(in)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v, want an error with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := missing
			if len(env) > 0 {
				got = string(env[0].Value)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
