// Package english keeps kubectl's catalogue of English texts unread. The texts that kubectl asks it for
// are those that it would answer with, word for word, and to read it takes 10 ms and 4 MB: of each process
// of this program, since kubectl asks while its packages are initialized. Other languages are read, by
// those processes that are kubectl.
//
// It is initialized before all of kubectl that asks for texts, as its path comes first and it imports
// nothing else: Go initializes what is ready in the order of paths. It must stay so.
package english

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/kubectl/pkg/util/i18n"
)

// late says that texts had been asked for before.
var late = i18n.SetLoadTranslationsFunc(func() error {
	if !kubectl(os.Args) || !foreign(os.Getenv) {
		return nil
	}
	return i18n.LoadTranslations("kubectl", nil)
})

// Late returns an error if kubectl had read its catalogue before it was kept from doing so.
func Late() error {
	if late != nil {
		return fmt.Errorf("keep the catalogue of English texts unread: %w", late)
	}
	return nil
}

// kubectl says whether a process with these arguments may be kubectl.
func kubectl(args []string) bool {
	return len(args) > 0 && (filepath.Base(args[0]) == "kubectl" || slices.Contains(args[1:], "kubectl"))
}

// foreign says whether people want another language than English, as kubectl reads it from the environment.
func foreign(env func(string) string) bool {
	language, _, ok := strings.Cut(cmp.Or(env("LC_ALL"), env("LC_MESSAGES"), env("LANG")), ".")
	return ok && language != "C" && language != "en_US"
}
