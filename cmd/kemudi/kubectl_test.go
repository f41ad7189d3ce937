package main

import (
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/english"
)

// The catalogue of English texts is not read, and nobody sees that: it says what kubectl asks it for.
// For a language that is in no catalogue kubectl reads that of English.
func TestKubectlSaysTheSameWithoutItsEnglishCatalogue(t *testing.T) {
	t.Parallel()
	if err := english.Late(); err != nil {
		t.Error(err)
	}
	unread, read := call{env: []string{"LANG=en_US.UTF-8"}}, call{env: []string{"LANG=xx_XX.UTF-8"}}
	for _, words := range []string{"", "create", "create service clusterip", "delete", "describe", "expose", "label", "rollout undo", "set image", "taint"} {
		args := append(append([]string{"kubectl"}, strings.Fields(words)...), "--help")
		got, want := unread.run(t, args...), read.run(t, args...)
		if got != want || got.code != 0 || len(got.stdout) < 500 {
			t.Errorf("%q without the catalogue: got %+v, want %+v", args, got, want)
		}
	}
	german := call{env: []string{"LANG=de_DE.UTF-8"}}.run(t, "kubectl", "create", "--help")
	if !strings.Contains(german.stdout, "Erstelle einen Namespace mit dem gegebenen Namen") {
		t.Errorf("kubectl create --help in German: got\n%s", german.stdout)
	}
}
