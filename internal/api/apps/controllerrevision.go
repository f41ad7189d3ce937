package apps

import (
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/resource"
)

// ControllerRevisions are immutable snapshots of what a controller works from.
var ControllerRevisions = resource.Define(resource.Spec[*appsv1.ControllerRevision]{
	Names:    resource.Names{Group: "apps", Version: "v1", Kind: "ControllerRevision", Plural: "controllerrevisions", Namespaced: true},
	Validate: validateControllerRevision,
	Columns: []resource.Column[*appsv1.ControllerRevision]{
		{Name: "Controller", Description: "Controller of the object", Value: func(r *appsv1.ControllerRevision) any { return controllerText(r) }},
		{Name: "Revision", Description: appsv1.ControllerRevision{}.SwaggerDoc()["revision"], Value: func(r *appsv1.ControllerRevision) any { return r.Revision }},
	},
	Versions: []resource.Version[*appsv1.ControllerRevision]{
		resource.SameWire[*appsv1beta2.ControllerRevision](resource.Version[*appsv1.ControllerRevision]{
			Group: "apps", Version: "v1beta2",
			Deprecated: "apps/v1beta2 ControllerRevision is deprecated in v1.9+, unavailable in v1.16+; use apps/v1 ControllerRevision",
		}),
		resource.SameWire[*appsv1beta1.ControllerRevision](resource.Version[*appsv1.ControllerRevision]{
			Group: "apps", Version: "v1beta1",
			Deprecated: "apps/v1beta1 ControllerRevision is deprecated in v1.8+, unavailable in v1.16+; use apps/v1 ControllerRevision",
		}),
	},
})

func validateControllerRevision(obj, old *appsv1.ControllerRevision, errs *resource.Errors) {
	errs.NonNegative("revision", obj.Revision)
	if old != nil {
		if !equality.Semantic.DeepEqual(obj.Data, old.Data) {
			errs.Immutable("data", obj.Data)
		}
		return
	}
	var data any
	if obj.Data.Raw == nil {
		errs.Required("data", "data is mandatory")
	} else if err := json.Unmarshal(obj.Data.Raw, &data); err != nil {
		errs.Invalid("data", "<value omitted>", fmt.Sprintf("error parsing data: %v", err))
	} else if data == nil {
		errs.Required("data", "data is mandatory")
	} else if _, ok := data.(map[string]any); !ok {
		errs.Required("data", "data must be a valid JSON object")
	}
}

// controllerText names the controller as kubectl get would: "statefulset.apps/web".
func controllerText(r *appsv1.ControllerRevision) string {
	ref := metav1.GetControllerOfNoCopy(r)
	if ref == nil {
		return "<none>"
	}
	kind := strings.ToLower(ref.Kind)
	if gv, err := schema.ParseGroupVersion(ref.APIVersion); err == nil && gv.Group != "" {
		kind += "." + gv.Group
	}
	return kind + "/" + ref.Name
}
