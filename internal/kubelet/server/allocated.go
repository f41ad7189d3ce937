package server

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serveAllocated answers with pods as they have been taken on: with the resources that they have been granted, which are
// not those that they ask for while a resize waits, and without statuses.
func (s *Server) serveAllocated(w http.ResponseWriter, r *http.Request) {
	list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: s.o.Pods.Allocated()}
	namespace, name, uid := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid")
	if name == "" {
		slices.SortFunc(list.Items, func(a, b v1.Pod) int {
			return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
		})
		writeJSON(w, list)
		return
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Namespace == namespace && p.Name == name && (uid == "" || string(p.UID) == uid) {
			p.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
			writeJSON(w, p)
			return
		}
	}
	fail(w, fmt.Errorf("%w: %s/%s", errNoPod, namespace, name))
}
