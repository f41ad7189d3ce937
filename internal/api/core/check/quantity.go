package check

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/resource"
)

// containerResources are the names without a domain that a container may ask for.
var containerResources = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
}

// countedResources are numbers of objects, in quotas.
var countedResources = []corev1.ResourceName{
	corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
	corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
	corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
}

// quotaResources are the names without a domain that a quota may limit.
var quotaResources = append([]corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsStorage, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}, countedResources...)

// IsHugePages reports whether a resource is pages of some size ("hugepages-2Mi").
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// IsNativeResource reports whether a name is Kubernetes' own: without a domain,
// or in kubernetes.io.
func IsNativeResource(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// IsExtendedResource reports whether a name may be that of a node's extended
// resource ("example.com/gpu").
func IsExtendedResource(name corev1.ResourceName) bool {
	if IsNativeResource(name) || strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) {
		return false
	}
	// A quota must be able to name it with the prefix.
	return len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// OvercommitAllowed reports whether a limit may be above the request.
func OvercommitAllowed(name corev1.ResourceName) bool {
	return IsNativeResource(name) && !IsHugePages(name)
}

// wholeNumbersOnly reports whether a resource cannot be divided.
func wholeNumbersOnly(name corev1.ResourceName) bool {
	return slices.Contains(countedResources, name) || IsExtendedResource(name)
}

// ResourceName accepts names of resources, wherever they may stand.
func ResourceName(errs *resource.Errors, path string, name corev1.ResourceName) bool {
	if slices.Contains(containerResources, name) {
		return true
	}
	if msgs := validation.IsQualifiedName(string(name)); len(msgs) > 0 {
		for _, msg := range msgs {
			errs.Invalid(path, name, msg)
		}
		return false
	}
	if !strings.Contains(string(name), "/") && !IsQuotaResource(name) && name != corev1.ResourceStorage {
		errs.Invalid(path, name, "must be a standard resource type or fully qualified")
		return false
	}
	return true
}

// ContainerResourceName accepts what a container may ask for.
func ContainerResourceName(errs *resource.Errors, path string, name corev1.ResourceName) {
	ResourceName(errs, path, name)
	switch {
	case !strings.Contains(string(name), "/"):
		if !slices.Contains(containerResources, name) && !IsHugePages(name) {
			errs.Invalid(path, name, "must be a standard resource for containers")
		}
	case !IsNativeResource(name) && !IsExtendedResource(name):
		errs.Invalid(path, name, "doesn't follow extended resource name standard")
	}
}

// IsQuotaResource reports whether a quota may limit a resource under this name,
// which has no domain.
func IsQuotaResource(name corev1.ResourceName) bool {
	return slices.Contains(quotaResources, name) || IsHugePages(name) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// QuotaResourceName accepts what a quota may limit.
func QuotaResourceName(errs *resource.Errors, path string, name corev1.ResourceName) {
	ResourceName(errs, path, name)
	if !strings.Contains(string(name), "/") && !IsQuotaResource(name) {
		errs.Invalid(path, name, "must be a standard resource for quota")
	}
}

// Quantity refuses negative amounts, and parts of what cannot be divided.
func Quantity(errs *resource.Errors, path string, name corev1.ResourceName, q apiresource.Quantity) {
	if q.Sign() < 0 {
		errs.Invalid(path, q.String(), "must be greater than or equal to 0")
	}
	if wholeNumbersOnly(name) && q.MilliValue()%1000 != 0 {
		errs.Invalid(path, q.String(), "must be an integer")
	}
}

// Positive refuses amounts of zero and below.
func Positive(errs *resource.Errors, path string, q apiresource.Quantity) {
	if q.Sign() <= 0 {
		errs.Invalid(path, q.String(), "must be greater than zero")
	}
}

// checkPageMultiple refuses amounts of huge pages that are not whole pages.
func checkPageMultiple(errs *resource.Errors, path string, name corev1.ResourceName, q apiresource.Quantity) {
	size, err := apiresource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	if err != nil || size.Sign() <= 0 || size.MilliValue()%1000 != 0 || q.Value()%size.Value() != 0 {
		errs.Invalid(path, q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name))
	}
}

// Requirements checks limits and requests. checkName accepts or refuses
// names; claims are the resource claims of the pod.
func Requirements(errs *resource.Errors, r *corev1.ResourceRequirements, claims []corev1.PodResourceClaim,
	checkName func(*resource.Errors, string, corev1.ResourceName)) {
	var compute, pages bool
	for name, limit := range r.Limits {
		at := errs.At("limits[%s]", name)
		checkName(at, "", name)
		Quantity(at, "", name, limit)
		compute = compute || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		if IsHugePages(name) {
			pages = true
			checkPageMultiple(at, "", name, limit)
		}
	}
	for name, request := range r.Requests {
		at := errs.At("requests[%s]", name)
		checkName(at, "", name)
		Quantity(at, "", name, request)
		checkAgainstLimit(errs, r, name, request)
		compute = compute || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		if IsHugePages(name) {
			pages = true
			checkPageMultiple(at, "", name, request)
		}
	}
	if pages && !compute {
		errs.Forbidden("", "HugePages require cpu or memory")
	}
	checkClaimReferences(errs, r.Claims, claims)
}

func checkAgainstLimit(errs *resource.Errors, r *corev1.ResourceRequirements, name corev1.ResourceName, request apiresource.Quantity) {
	limit, limited := r.Limits[name]
	switch {
	case !limited:
		if !OvercommitAllowed(name) {
			errs.Required("limits", "Limit must be set for non overcommitable resources")
		}
	case request.Cmp(limit) != 0 && !OvercommitAllowed(name):
		errs.Invalid("requests", request.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
	case request.Cmp(limit) > 0:
		errs.Invalid("requests", request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
	}
}

// checkClaimReferences checks that a container uses resource claims of its pod,
// each once: as a whole, or some of its requests.
func checkClaimReferences(errs *resource.Errors, refs []corev1.ResourceClaim, claims []corev1.PodResourceClaim) {
	for i, ref := range refs {
		at := errs.At("claims[%d]", i)
		if ref.Name == "" {
			at.Required("", "")
			continue
		}
		if ref.Request != "" {
			DNSLabel(at, "request", ref.Request)
		}
		for _, before := range refs[:i] {
			if before.Name != ref.Name {
				continue
			}
			switch {
			case before.Request == "", ref.Request == "":
				at.Duplicate("", ref.Name)
			case before.Request == ref.Request:
				at.Duplicate("", ref.Name+"/"+ref.Request)
			default:
				continue
			}
			break
		}
		if !slices.ContainsFunc(claims, func(c corev1.PodResourceClaim) bool { return c.Name == ref.Name }) {
			at.NotFoundBecause("", ref.Name, unknownClaimDetail(claims))
		}
	}
}

func unknownClaimDetail(claims []corev1.PodResourceClaim) string {
	var names []string
	for _, c := range claims {
		if c.Name != "" {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return "must be one of the names in pod.spec.resourceClaims which is empty"
	}
	slices.Sort(names)
	return "must be one of the names in pod.spec.resourceClaims: " + strings.Join(names, ", ")
}
