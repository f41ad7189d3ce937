package plugins

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/auth/rbac"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/texttest"
)

func TestMapListsEveryPlugin(t *testing.T) {
	var b strings.Builder
	b.WriteString("| plugin | on by default | may change or refuse (Mutate) | sees what is to be stored, and may refuse (Validate) | file |\n|---|---|---|---|---|\n")
	yes := map[bool]string{true: "yes"}
	for _, e := range entries(&admission.Options{Caches: func(*resource.Def) *cache.Cache { return nil }, Authorizer: &rbac.Authorizer{}, Rules: &rbac.Authorizer{}}) {
		file := strings.TrimPrefix(texttest.Declaring(t, "../*/*.go", e.Name), "../")
		fmt.Fprintf(&b, "| %s | %s | %s | %s | [%s](../internal/admission/%s) |\n", e.Name, yes[!e.off], yes[e.Mutate != nil], yes[e.Validate != nil], file, file)
	}
	texttest.Part(t, "../../../docs/MAP.md", "admission plugins", b.String())
}
