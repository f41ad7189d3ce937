package call

import (
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kemudi/kemudi/internal/api"
)

// legacyScheme is what upstream's errors call the list of all kinds that are built in.
const legacyScheme = "pkg/api/legacyscheme/scheme.go:30"

// Mismatch says, in upstream's words, why a document of one built-in kind cannot be taken for another.
func Mismatch(got, want schema.GroupVersionKind) string {
	if !builtIn()[got] {
		return fmt.Sprintf("no kind %q is registered for version %q in scheme %q", got.Kind, got.GroupVersion(), legacyScheme)
	}
	return fmt.Sprintf("converting (%s.%s) to (%s): unknown conversion", got.Version, got.Kind, GoType(want, true))
}

// GoType is what upstream's errors call the type of a kind in its memory.
func GoType(of schema.GroupVersionKind, builtIn bool) string {
	if !builtIn {
		return "unstructured.Unstructured"
	}
	return packageOf(of) + "." + of.Kind
}

// OtherKind refuses an object of a kind that is known at run time only and says that it is of another.
func OtherKind(name string, got, want schema.GroupVersionKind) error {
	var errs field.ErrorList
	if got.Kind != want.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), got.Kind, "must be "+want.Kind))
	}
	if got.GroupVersion() != want.GroupVersion() {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), got.GroupVersion().String(), "must be "+want.GroupVersion().String()))
	}
	return apierrors.NewInvalid(got.GroupKind(), name, errs)
}

// packageOf is where upstream has the form of a kind that all its versions are converted to and from.
func packageOf(of schema.GroupVersionKind) string {
	if of.Group == "" || of.Kind == "Event" {
		return "core"
	}
	name, _, _ := strings.Cut(of.Group, ".")
	return name
}

// builtIn are all kinds that are built in, their lists, those of subresources, and those that
// every version has.
var builtIn = sync.OnceValue(func() map[schema.GroupVersionKind]bool {
	known := map[schema.GroupVersionKind]bool{}
	add := func(group, version, kind string) {
		for _, kind := range append([]string{kind, kind + "List"}, everywhere...) {
			known[schema.GroupVersionKind{Group: group, Version: version, Kind: kind}] = true
		}
	}
	for _, d := range api.All() {
		add(d.Group, d.Version, d.Kind)
		for i := range d.Versions {
			add(d.Versions[i].Group, d.Versions[i].Version, d.Kind)
		}
		for i := range d.Sub {
			if b := d.Sub[i].Body; b != nil {
				known[schema.GroupVersionKind{Group: b.Group, Version: b.Version, Kind: b.Kind}] = true
			}
		}
	}
	for _, kind := range []string{"List", "Status", "APIVersions", "APIGroup", "APIGroupList", "APIResourceList"} {
		known[schema.GroupVersionKind{Version: "v1", Kind: kind}] = true
	}
	return known
})

// everywhere are the kinds that upstream knows in every version of every group.
var everywhere = []string{"WatchEvent", "ListOptions", "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions"}
