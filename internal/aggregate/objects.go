package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// emptier is who empties namespaces, as upstream's servers know it.
var emptier = &user.DefaultInfo{
	Name:   "system:serviceaccount:kube-system:namespace-controller",
	Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", user.AllAuthenticated},
}

// onlyMeta asks for objects without what is in them.
const onlyMeta = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// Empty deletes what other servers have in a namespace. It returns how many objects are left, by resource, and
// the group-versions of which that is not known because their servers cannot be asked.
func (a *Aggregator) Empty(ctx context.Context, namespace string) (left map[schema.GroupResource]int, unknown []schema.GroupVersion, err error) {
	t := a.seen.Load()
	if t.found == nil {
		return nil, nil, nil
	}
	left = map[schema.GroupResource]int{}
	for i := range t.found.Versions {
		v := &t.found.Versions[i]
		to := t.byGV[v.GroupVersion]
		if !to.available || to.broken != nil || v.Stale {
			unknown = append(unknown, v.GroupVersion)
			continue
		}
		for j := range v.Resources {
			res := &v.Resources[j]
			gr := schema.GroupResource{Group: v.Group, Resource: res.Resource}
			if _, done := left[gr]; done || res.Scope != apidiscovery.ScopeNamespace || !slices.Contains(res.Verbs, "deletecollection") {
				continue
			}
			n, failed := a.empty(ctx, to.remote, res.Resource, namespace)
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", gr, failed))
			}
			left[gr] = n
		}
	}
	return left, unknown, err
}

// empty deletes the objects of one resource in a namespace, and returns how many are left.
func (a *Aggregator) empty(ctx context.Context, r *remote, plural, namespace string) (left int, _ error) {
	path := r.root() + "/namespaces/" + url.PathEscape(namespace) + "/" + plural
	if _, err := a.send(ctx, r, request{method: http.MethodDelete, path: path, by: emptier}); err != nil {
		return 0, err
	}
	body, err := a.send(ctx, r, request{path: path, accept: onlyMeta, by: emptier})
	if err != nil {
		return 0, err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return 0, fmt.Errorf("read what is left: %w", err)
	}
	return len(list.Items), nil
}
