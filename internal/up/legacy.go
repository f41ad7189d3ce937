package up

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/apiserver/legacy"
)

// LegacyCall is what one server knows of somebody's calls of a version that is deprecated.
type LegacyCall struct {
	legacy.Call
	Server string `json:"server"`
}

// LegacyCalls are those that all servers know, the last call first.
func LegacyCalls(ctx context.Context, a Access) ([]LegacyCall, error) {
	api, _, err := a.client()
	if err != nil {
		return nil, err
	}
	kept, err := api.CoreV1().ConfigMaps(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: legacy.Label})
	if err != nil {
		return nil, err
	}
	all := []LegacyCall{}
	for i := range kept.Items {
		m := &kept.Items[i]
		list, err := legacy.Parse(m.Data)
		if err != nil {
			return nil, fmt.Errorf("configmap %s/%s: %w; delete it, and it is made anew", m.Namespace, m.Name, err)
		}
		for _, c := range list {
			all = append(all, LegacyCall{Call: c, Server: strings.TrimPrefix(m.Name, legacy.Prefix)})
		}
	}
	legacy.SortBy(all, func(c LegacyCall) legacy.Call { return c.Call })
	return all, nil
}
