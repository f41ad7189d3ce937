package apiextensions

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// v1beta1 has a schema, columns and subresources for all versions together, beside those of one,
// and keeps fields that no schema knows unless it is told otherwise.
var v1beta1 = resource.Version[*apiextensionsv1.CustomResourceDefinition]{
	Group: "apiextensions.k8s.io", Version: "v1beta1",
	Deprecated: "apiextensions.k8s.io/v1beta1 CustomResourceDefinition is deprecated in v1.16+, unavailable in v1.22+; use apiextensions.k8s.io/v1 CustomResourceDefinition",
	New:        func() resource.Object { return &apiextensionsv1beta1.CustomResourceDefinition{} },
	Default: func(obj resource.Object) {
		apiextensionsv1beta1.SetObjectDefaults_CustomResourceDefinition(obj.(*apiextensionsv1beta1.CustomResourceDefinition))
	},
	Validate: validateV1beta1,
	To: func(obj resource.Object) (*apiextensionsv1.CustomResourceDefinition, error) {
		var hub apiextensions.CustomResourceDefinition
		in, out := obj.(*apiextensionsv1beta1.CustomResourceDefinition), &apiextensionsv1.CustomResourceDefinition{}
		err := apiextensionsv1beta1.Convert_v1beta1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(in, &hub, nil)
		if err == nil {
			err = apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(&hub, out, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("convert the definition: %w", err)
		}
		return out, nil
	},
	From: func(obj *apiextensionsv1.CustomResourceDefinition) (resource.Object, error) {
		var hub apiextensions.CustomResourceDefinition
		out := &apiextensionsv1beta1.CustomResourceDefinition{}
		err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(obj.DeepCopy(), &hub, nil)
		if err == nil {
			err = apiextensionsv1beta1.Convert_apiextensions_CustomResourceDefinition_To_v1beta1_CustomResourceDefinition(&hub, out, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("convert the definition: %w", err)
		}
		return out, nil
	},
}
