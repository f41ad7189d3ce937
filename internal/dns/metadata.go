package dns

import (
	"context"
	"strings"

	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/request"
)

var _ metadata.Provider = (*handler)(nil)

// Metadata says of a question which pod asks, and what it asks about, for other plugins to write down or go by.
func (h *handler) Metadata(ctx context.Context, state request.Request) context.Context {
	set := func(label, value string) {
		metadata.SetValueFunc(ctx, "kubernetes/"+label, func() string { return value })
	}
	if pod := h.client(&state); pod != nil {
		set("client-namespace", pod.Namespace)
		set("client-pod-name", pod.Name)
		for key, value := range pod.Labels {
			set("client-label/"+key, value)
		}
	}
	zone := h.names.rules.zone(state.Name())
	if zone == "" {
		return ctx
	}
	parts, ok := partsOf(zone, state.Name())
	if !ok {
		set("parse-error", "invalid query name")
		return ctx
	}
	for _, label := range []string{"port-name", "protocol", "endpoint", "service", "namespace", "kind"} {
		set(label, parts[label])
	}
	return ctx
}

// partsOf takes a name apart, which need not be that of anything.
func partsOf(zone, name string) (parts map[string]string, ok bool) {
	parts = map[string]string{}
	rest := strings.TrimSuffix(strings.TrimSuffix(name, zone), ".")
	if rest == "" {
		return parts, true
	}
	labels := strings.Split(rest, ".")
	for _, part := range []string{"kind", "namespace", "service"} {
		if n := len(labels); n > 0 {
			parts[part], labels = labels[n-1], labels[:n-1]
		}
	}
	switch len(labels) {
	case 0:
	case 1:
		parts["endpoint"] = labels[0]
	case 2:
		parts["port-name"], parts["protocol"] = strings.TrimPrefix(labels[0], "_"), strings.TrimPrefix(labels[1], "_")
	default:
		return nil, false
	}
	return parts, parts["kind"] == "svc" || parts["kind"] == "pod"
}
