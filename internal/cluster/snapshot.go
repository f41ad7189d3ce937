package cluster

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/apiserver"
)

// snapshot gives an administrator the store, by GET: with all Secrets of all namespaces, which no right to a path is
// meant to give.
func (m *seats) snapshot(_ context.Context, q apiserver.PlainRequest) (any, error) {
	if !slices.Contains(q.User.GetGroups(), user.SystemPrivilegedGroup) {
		return nil, apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("the whole store is for members of the group %s alone", user.SystemPrivilegedGroup))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := m.store.Snapshot(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer s.Close() // of what was only read
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.FormatInt(s.Size(), 10))
		_, _ = s.WriteTo(w) // who gets less than was announced knows
	}), nil
}
