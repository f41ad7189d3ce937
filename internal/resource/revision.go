package resource

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Revision is the revision of an object from the API; 0 if it has none.
func Revision(obj metav1.Object) int64 {
	rev, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return rev
}
