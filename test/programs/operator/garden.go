package main

import (
	"fmt"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

// The versions of the kind: v1 is stored.
var (
	v1      = schema.GroupVersion{Group: "gardens.example.com", Version: "v1"}
	v1beta1 = schema.GroupVersion{Group: "gardens.example.com", Version: "v1beta1"}
)

// addToScheme makes both versions known.
func addToScheme(s *runtime.Scheme) {
	s.AddKnownTypeWithName(v1.WithKind("Garden"), &Garden{})
	s.AddKnownTypeWithName(v1.WithKind("GardenList"), &GardenList{})
	s.AddKnownTypeWithName(v1beta1.WithKind("Garden"), &OldGarden{})
	s.AddKnownTypeWithName(v1beta1.WithKind("GardenList"), &OldGardenList{})
	metav1.AddToGroupVersion(s, v1)
	metav1.AddToGroupVersion(s, v1beta1)
}

// Garden has as many pods as beds.
type Garden struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GardenSpec   `json:"spec"`
	Status GardenStatus `json:"status,omitempty"`
}

// GardenSpec is what people want.
type GardenSpec struct {
	Beds  int32  `json:"beds"`
	Owner string `json:"owner,omitempty"`
}

// GardenStatus is what there is.
type GardenStatus struct {
	Planted    int32              `json:"planted"`
	Selector   string             `json:"selector,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GardenList is a list of gardens.
type GardenList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Garden `json:"items"`
}

// OldGarden is what a garden was in v1beta1: its size is a text, "3 beds".
type OldGarden struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   OldGardenSpec `json:"spec"`
	Status GardenStatus  `json:"status,omitempty"`
}

// OldGardenSpec is what people wanted.
type OldGardenSpec struct {
	Size  string `json:"size"`
	Owner string `json:"owner,omitempty"`
}

// OldGardenList is a list of gardens of v1beta1.
type OldGardenList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []OldGarden `json:"items"`
}

var (
	_ conversion.Hub         = (*Garden)(nil)
	_ conversion.Convertible = (*OldGarden)(nil)
)

// Hub marks the version that others are converted to.
func (*Garden) Hub() {}

// ConvertTo makes a garden of v1 of it.
func (o *OldGarden) ConvertTo(hub conversion.Hub) error {
	g := hub.(*Garden)
	count, _, _ := strings.Cut(o.Spec.Size, " ")
	beds, err := strconv.ParseInt(count, 10, 32)
	if err != nil {
		return fmt.Errorf("spec.size: %w", err)
	}
	g.ObjectMeta, g.Status = o.ObjectMeta, o.Status
	g.Spec = GardenSpec{Beds: int32(beds), Owner: o.Spec.Owner}
	return nil
}

// ConvertFrom is the way back.
func (o *OldGarden) ConvertFrom(hub conversion.Hub) error {
	g := hub.(*Garden)
	o.ObjectMeta, o.Status = g.ObjectMeta, g.Status
	o.Spec = OldGardenSpec{Size: fmt.Sprintf("%d beds", g.Spec.Beds), Owner: g.Spec.Owner}
	return nil
}

// DeepCopyObject copies a garden.
func (g *Garden) DeepCopyObject() runtime.Object {
	out := *g
	g.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status = g.Status.copy()
	return &out
}

func (s GardenStatus) copy() GardenStatus {
	in := s.Conditions
	s.Conditions = make([]metav1.Condition, len(in))
	for i := range in {
		in[i].DeepCopyInto(&s.Conditions[i])
	}
	return s
}

// DeepCopyObject copies a list.
func (l *GardenList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Garden, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Garden)
	}
	return &out
}

// DeepCopyObject copies a garden.
func (o *OldGarden) DeepCopyObject() runtime.Object {
	out := *o
	o.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status = o.Status.copy()
	return &out
}

// DeepCopyObject copies a list.
func (l *OldGardenList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]OldGarden, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*OldGarden)
	}
	return &out
}

// definition is what the generator of such definitions makes of the types above.
func definition() *apiextensionsv1.CustomResourceDefinition {
	type props = map[string]apiextensionsv1.JSONSchemaProps
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	least := 0.0
	number := apiextensionsv1.JSONSchemaProps{Type: "integer", Format: "int32", Minimum: &least}
	moment := apiextensionsv1.JSONSchemaProps{Type: "string", Format: "date-time"}
	listType := "map"
	condition := apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{"lastTransitionTime", "message", "reason", "status", "type"}, Properties: props{
		"type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": moment, "observedGeneration": {Type: "integer", Format: "int64"},
	}}
	status := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: props{
		"planted": number, "selector": text,
		"conditions": {Type: "array", XListType: &listType, XListMapKeys: []string{"type"}, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &condition}},
	}}
	version := func(name, size string, of apiextensionsv1.JSONSchemaProps) apiextensionsv1.CustomResourceDefinitionVersion {
		spec := apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{size}, Properties: props{size: of, "owner": text}}
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: name == v1.Version,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Required: []string{"spec"}, Properties: props{"apiVersion": text, "kind": text, "metadata": {Type: "object"}, "spec": spec, "status": status},
			}},
			Subresources:             &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			SelectableFields:         []apiextensionsv1.SelectableField{{JSONPath: ".spec.owner"}},
			AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Planted", Type: "integer", JSONPath: ".status.planted"}},
		}
	}
	selector := ".status.selector"
	now, old := version(v1.Version, "beds", number), version(v1beta1.Version, "size", text)
	// What upstream checks refuses fields that all versions select by, if their schemas are not the same.
	old.SelectableFields = append(old.SelectableFields, apiextensionsv1.SelectableField{JSONPath: ".spec.size"})
	now.Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.beds", StatusReplicasPath: ".status.planted", LabelSelectorPath: &selector}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gardens." + v1.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: v1.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "gardens", Singular: "garden", Kind: "Garden", ListKind: "GardenList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{now, old},
		},
	}
}
