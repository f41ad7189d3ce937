package workload

import (
	"fmt"
	"hash/fnv"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// TemplateHash names a template in few letters that spell no words; collisions
// counts how often the name was already taken by another template (nil: never).
func TemplateHash(t *corev1.PodTemplateSpec, collisions *int32) (string, error) {
	data, err := t.Marshal()
	if err != nil {
		return "", fmt.Errorf("encode template: %w", err)
	}
	h := fnv.New32a()
	h.Write(data)
	if collisions != nil {
		fmt.Fprintf(h, "/%d", *collisions)
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10)), nil
}
