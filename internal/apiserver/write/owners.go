package write

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What who names an owner twice is told, by whether admission has had its say.
const (
	ownersTwice      = ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v"
	ownersStillTwice = ".metadata.ownerReferences contains duplicate entries after mutating admission happens; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v"
)

// eachOwnerOnce takes away owners that are named twice, and tells so in the words given.
func (w *attempt) eachOwnerOnce(text string) {
	refs := w.obj.GetOwnerReferences()
	if len(refs) < 2 || w.trusted {
		return
	}
	var once []metav1.OwnerReference
	var twice []string
	for _, ref := range refs {
		if slices.ContainsFunc(once, func(o metav1.OwnerReference) bool { return o.UID == ref.UID && equality.Semantic.DeepEqual(o, ref) }) {
			twice = append(twice, string(ref.UID))
			continue
		}
		once = append(once, ref)
	}
	if len(twice) > 0 {
		w.c.Warn(fmt.Sprintf(text, strings.Join(twice, ", ")))
		w.obj.SetOwnerReferences(once)
	}
}
