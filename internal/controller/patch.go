package controller

import (
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"
)

// withUID renders a patch that only applies to the object with the UID: the API
// refuses to change a UID.
func withUID(uid types.UID, patch map[string]any) ([]byte, error) {
	patch = maps.Clone(patch)
	metadata := map[string]any{"uid": string(uid)}
	if m, ok := patch["metadata"].(map[string]any); ok {
		maps.Copy(metadata, m)
	}
	patch["metadata"] = metadata
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return data, nil
}
