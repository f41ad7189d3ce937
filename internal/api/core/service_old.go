package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// AnnotationTopologyKeys holds what the field spec.topologyKeys of v1.17 to
// v1.21 said, as a list in JSON: by which node labels clients and endpoints are
// brought together. Today's Service type has no field that can say it.
const AnnotationTopologyKeys = "service.kemudi.io/topology-keys"

// TopologyKeyAny is the topology key that any endpoint fits.
const TopologyKeyAny = "*"

const maxTopologyKeys = 16

// serviceOldFields are fields that documents of earlier releases have.
var serviceOldFields = []resource.OldField{
	{
		Path: []string{"spec", "topologyKeys"}, Instead: []string{"metadata", "annotations", AnnotationTopologyKeys},
		To: keepTopologyKeys,
		From: func(kept any) any {
			text, _ := kept.(string)
			var list []any
			_ = json.Unmarshal([]byte(text), &list) // what is no list was never the field
			return list
		},
		Warning: "spec.topologyKeys is deprecated in v1.21+, unavailable in v1.22+: it is kept in the annotation service.kemudi.io/topology-keys and still obeyed; " +
			"use spec.trafficDistribution or spec.internalTrafficPolicy",
		Type: reflect.TypeFor[[]string](),
		Description: "topologyKeys is a preference-order list of node labels: traffic goes to endpoints on nodes whose value of the first label at which any " +
			"match equals that of the client's node; \"*\", as the last one, means any endpoint. Deprecated: the value is kept in the annotation service.kemudi.io/topology-keys.",
	},
	{
		Path: []string{"spec", "ipFamily"}, Instead: []string{"spec", "ipFamilies"},
		To: func(value, there any) (any, error) {
			family, ok := value.(string)
			if !ok {
				return nil, errors.New("must be a string")
			}
			if list, ok := there.([]any); ok && len(list) > 0 {
				if list[0] != family {
					return nil, fmt.Errorf("%q is not the first of spec.ipFamilies", family)
				}
				return there, nil
			}
			return []any{family}, nil
		},
		From: func(kept any) any {
			if list, ok := kept.([]any); ok && len(list) > 0 {
				return list[0]
			}
			return nil
		},
		Warning:     "spec.ipFamily is unavailable in v1.20+; it is read as the first of spec.ipFamilies",
		Type:        reflect.TypeFor[string](),
		Description: "ipFamily is the family of the cluster IP, IPv4 or IPv6. Deprecated: it is read as the first of ipFamilies.",
	},
}

func keepTopologyKeys(value, _ any) (any, error) {
	list, ok := value.([]any)
	if !ok || slices.ContainsFunc(list, func(v any) bool { _, ok := v.(string); return !ok }) {
		return nil, errors.New("must be a list of strings")
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// TopologyKeys are the node labels by which endpoints for a client are chosen,
// the most wanted first; nil if any endpoint will do.
func TopologyKeys(s *corev1.Service) []string {
	keys, _ := topologyKeys(s) // what is stored has been checked
	return keys
}

func topologyKeys(s *corev1.Service) (keys []string, err error) {
	if text, ok := s.Annotations[AnnotationTopologyKeys]; ok {
		err = json.Unmarshal([]byte(text), &keys)
	}
	return keys, err
}

func validateTopologyKeys(errs *resource.Errors, s *corev1.Service) {
	keys, err := topologyKeys(s)
	if err != nil {
		errs.At("metadata.annotations[%s]", AnnotationTopologyKeys).Invalid("", s.Annotations[AnnotationTopologyKeys], "must be a list of strings in JSON")
		return
	}
	if len(keys) > 0 && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		errs.Forbidden("spec.topologyKeys", "may not be specified when `externalTrafficPolicy=Local`")
	}
	if len(keys) > maxTopologyKeys {
		errs.TooMany("spec.topologyKeys", len(keys), maxTopologyKeys)
	}
	for i, key := range keys {
		at := errs.At("spec.topologyKeys[%d]", i)
		if slices.Contains(keys[:i], key) {
			at.Duplicate("", key)
		}
		if key == TopologyKeyAny {
			if i != len(keys)-1 {
				at.Invalid("", key, `"*" must be the last value specified`)
			}
			continue
		}
		before := errs.Len()
		check.QualifiedName(at, "", key)
		if errs.Len() == before {
			check.OneOf(at, "", key, corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, TopologyKeyAny)
		}
	}
}
