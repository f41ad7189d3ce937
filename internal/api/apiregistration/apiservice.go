package apiregistration

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// APIServices say who serves a group-version: another server, behind a service, or this one.
var APIServices = resource.Define(resource.Spec[*apiregistrationv1.APIService]{
	Names: resource.Names{
		Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService", Plural: "apiservices", Categories: []string{"api-extensions"},
		StoragePrefix: "apiregistration.k8s.io/apiservices", NameRule: resource.PathSegment, // Validate knows the name
	},
	Update: resource.UpdateNeedsRevision,
	Default: func(obj *apiregistrationv1.APIService) {
		if s := obj.Spec.Service; s != nil && s.Port == nil {
			s.Port = ptr.To[int32](443)
		}
	},
	Prepare: func(obj, old *apiregistrationv1.APIService) {
		if old != nil {
			obj.Status = old.Status
			return
		}
		obj.Status = apiregistrationv1.APIServiceStatus{}
		if obj.Spec.Service == nil {
			SetAvailable(&obj.Status, Local())
		}
	},
	Validate: validateAPIService,
	Columns: []resource.Column[*apiregistrationv1.APIService]{
		{Name: "Service", Description: "The reference to the service that hosts this API endpoint.", Value: func(s *apiregistrationv1.APIService) any { return serviceText(s) }},
		{Name: "Available", Description: "Whether this service is available.", Value: func(s *apiregistrationv1.APIService) any { return availableText(s) }},
	},
	Sub: []resource.Sub[*apiregistrationv1.APIService]{{
		Name: "status", Keeps: resource.KeepsMetadata,
		Merge:    func(obj, old *apiregistrationv1.APIService) { obj.Spec = old.Spec },
		Validate: validateAPIServiceStatus,
	}},
	Versions: []resource.Version[*apiregistrationv1.APIService]{
		resource.SameWire[*apiregistrationv1beta1.APIService](resource.Version[*apiregistrationv1.APIService]{
			Group: "apiregistration.k8s.io", Version: "v1beta1",
			Deprecated: "apiregistration.k8s.io/v1beta1 APIService is deprecated in v1.19+, unavailable in v1.22+; use apiregistration.k8s.io/v1 APIService",
		}),
	},
})

// Name is the name of the APIService of a group-version, "v1.apps".
func Name(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }

// Available is the condition that says whether the group-version can be used; nil: nothing does.
func Available(s *apiregistrationv1.APIService) *apiregistrationv1.APIServiceCondition {
	for i := range s.Status.Conditions {
		if c := &s.Status.Conditions[i]; c.Type == apiregistrationv1.Available {
			return c
		}
	}
	return nil
}

// SetAvailable writes the condition into a status, which the caller owns. It keeps the time of the
// last transition if there is none.
func SetAvailable(s *apiregistrationv1.APIServiceStatus, c apiregistrationv1.APIServiceCondition) {
	c.Type, c.LastTransitionTime = apiregistrationv1.Available, metav1.Now()
	for i := range s.Conditions {
		if was := &s.Conditions[i]; was.Type == c.Type {
			if was.Status == c.Status {
				c.LastTransitionTime = was.LastTransitionTime
			}
			*was = c
			return
		}
	}
	s.Conditions = append(s.Conditions, c)
}

// Local is the condition of a group-version that this server has.
func Local() apiregistrationv1.APIServiceCondition {
	return apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue,
		Reason: "Local", Message: "Local APIServices are always available",
	}
}

func serviceText(s *apiregistrationv1.APIService) string {
	if r := s.Spec.Service; r != nil {
		return r.Namespace + "/" + r.Name
	}
	return "Local"
}

func availableText(s *apiregistrationv1.APIService) string {
	c := Available(s)
	switch {
	case c == nil:
		return string(apiregistrationv1.ConditionUnknown)
	case c.Status == apiregistrationv1.ConditionTrue, c.Reason == "":
		return string(c.Status)
	}
	return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
}

func validateAPIService(obj, _ *apiregistrationv1.APIService, errs *resource.Errors) {
	s := &obj.Spec
	if want := s.Version + "." + s.Group; obj.Name != want {
		errs.Invalid("metadata.name", obj.Name, fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", want))
	}
	if s.Group == "" && s.Version != "v1" {
		errs.Required("spec.group", "only v1 may have an empty group and it better be legacy kube")
	}
	if s.Group != "" {
		errs.Refuse("spec.group", s.Group, validation.IsDNS1123Subdomain(s.Group))
	}
	errs.Refuse("spec.version", s.Version, validation.IsDNS1035Label(s.Version))
	if s.GroupPriorityMinimum <= 0 || s.GroupPriorityMinimum > 20000 {
		errs.Invalid("spec.groupPriorityMinimum", s.GroupPriorityMinimum, "must be positive and less than 20000")
	}
	if s.VersionPriority <= 0 || s.VersionPriority > 1000 {
		errs.Invalid("spec.versionPriority", s.VersionPriority, "must be positive and less than 1000")
	}
	if s.Service == nil {
		if len(s.CABundle) > 0 {
			errs.Invalid("spec.caBundle", fmt.Sprintf("%d bytes", len(s.CABundle)), "local APIServices may not have a caBundle")
		}
		if s.InsecureSkipTLSVerify {
			errs.Invalid("spec.insecureSkipTLSVerify", true, "local APIServices may not have insecureSkipTLSVerify")
		}
		return
	}
	if s.Service.Namespace == "" {
		errs.Required("spec.service.namespace", "")
	}
	if s.Service.Name == "" {
		errs.Required("spec.service.name", "")
	}
	port := ptr.Deref(s.Service.Port, 0)
	if wrong := validation.IsValidPortNum(int(port)); wrong != nil {
		errs.Invalid("spec.service.port", port, "port is not valid: "+strings.Join(wrong, ", "))
	}
	if s.InsecureSkipTLSVerify && len(s.CABundle) > 0 {
		errs.Invalid("spec.insecureSkipTLSVerify", true, "may not be true if caBundle is present")
	}
}

func validateAPIServiceStatus(obj, _ *apiregistrationv1.APIService, errs *resource.Errors) {
	for i := range obj.Status.Conditions {
		switch s := obj.Status.Conditions[i].Status; s {
		case apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown:
		default:
			resource.NotSupported(errs, fmt.Sprintf("status.conditions[%d].status", i), s,
				apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown)
		}
	}
}
