package gateway

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/custom"
)

// Decode reads an object of the Gateway API.
func Decode(o *custom.Object, into metav1.Object) error {
	body, err := o.JSON()
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", o.Name, err)
	}
	into.SetName(o.Name)
	into.SetNamespace(o.Namespace)
	into.SetUID(o.UID)
	into.SetResourceVersion(o.ResourceVersion)
	into.SetGeneration(o.Generation)
	into.SetCreationTimestamp(o.CreationTimestamp)
	into.SetLabels(o.Labels)
	into.SetAnnotations(o.Annotations)
	return nil
}
