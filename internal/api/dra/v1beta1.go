package dra

import (
	"encoding/json"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// What v1beta1 has in another form: a request says itself what it asks for, unless it
// has alternatives (v1 has `exactly` for it), and a device has all but its name in
// `basic`. The fields in there are called the same, so they are carried over by their
// names; all else has the same protobuf form.
var (
	claimV1beta1 = resource.Version[*resourcev1.ResourceClaim]{
		Group: "resource.k8s.io", Version: "v1beta1", OffByDefault: true,
		Deprecated: "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+",
		New:        func() resource.Object { return &resourcev1beta1.ResourceClaim{} },
		Default:    func(obj resource.Object) { defaultRequests(obj.(*resourcev1beta1.ResourceClaim).Spec.Devices.Requests) },
		To: func(obj resource.Object) (*resourcev1.ResourceClaim, error) {
			in := obj.(*resourcev1beta1.ResourceClaim)
			requests := in.Spec.Devices.Requests
			in.Spec.Devices.Requests = nil
			out, err := resource.Recode[*resourcev1.ResourceClaim](in)
			if err == nil {
				out.Spec.Devices.Requests, err = requestsToV1(requests)
			}
			return out, err
		},
		From: func(obj *resourcev1.ResourceClaim) (resource.Object, error) {
			in := *obj
			in.Spec.Devices.Requests = nil
			out, err := resource.Recode[*resourcev1beta1.ResourceClaim](&in)
			if err == nil {
				out.Spec.Devices.Requests, err = requestsFromV1(obj.Spec.Devices.Requests)
			}
			return out, err
		},
	}
	templateV1beta1 = resource.Version[*resourcev1.ResourceClaimTemplate]{
		Group: "resource.k8s.io", Version: "v1beta1", OffByDefault: true,
		Deprecated: "resource.k8s.io/v1beta1 ResourceClaimTemplate is deprecated in v1.35+, unavailable in v1.38+",
		New:        func() resource.Object { return &resourcev1beta1.ResourceClaimTemplate{} },
		Default: func(obj resource.Object) {
			defaultRequests(obj.(*resourcev1beta1.ResourceClaimTemplate).Spec.Spec.Devices.Requests)
		},
		To: func(obj resource.Object) (*resourcev1.ResourceClaimTemplate, error) {
			in := obj.(*resourcev1beta1.ResourceClaimTemplate)
			requests := in.Spec.Spec.Devices.Requests
			in.Spec.Spec.Devices.Requests = nil
			out, err := resource.Recode[*resourcev1.ResourceClaimTemplate](in)
			if err == nil {
				out.Spec.Spec.Devices.Requests, err = requestsToV1(requests)
			}
			return out, err
		},
		From: func(obj *resourcev1.ResourceClaimTemplate) (resource.Object, error) {
			in := *obj
			in.Spec.Spec.Devices.Requests = nil
			out, err := resource.Recode[*resourcev1beta1.ResourceClaimTemplate](&in)
			if err == nil {
				out.Spec.Spec.Devices.Requests, err = requestsFromV1(obj.Spec.Spec.Devices.Requests)
			}
			return out, err
		},
	}
	sliceV1beta1 = resource.Version[*resourcev1.ResourceSlice]{
		Group: "resource.k8s.io", Version: "v1beta1", OffByDefault: true,
		Deprecated: "resource.k8s.io/v1beta1 ResourceSlice is deprecated in v1.35+, unavailable in v1.38+",
		New:        func() resource.Object { return &resourcev1beta1.ResourceSlice{} },
		To: func(obj resource.Object) (*resourcev1.ResourceSlice, error) {
			return sliceToV1(obj.(*resourcev1beta1.ResourceSlice))
		},
		From: func(obj *resourcev1.ResourceSlice) (resource.Object, error) { return sliceFromV1(obj) },
	}
)

// byName carries over the fields that both types have, by their names.
func byName(to, from any) error {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return fmt.Errorf("convert %T to %T: %w", from, to, err)
	}
	return nil
}

// defaultRequests asks for one device where a request says nothing of how many. It is
// by that, too, that a request with nothing but a name is one without alternatives.
func defaultRequests(requests []resourcev1beta1.DeviceRequest) {
	for i := range requests {
		if r := &requests[i]; len(r.FirstAvailable) == 0 {
			defaultMode((*resourcev1.DeviceAllocationMode)(&r.AllocationMode), &r.Count)
		}
	}
}

func requestsToV1(in []resourcev1beta1.DeviceRequest) ([]resourcev1.DeviceRequest, error) {
	var out []resourcev1.DeviceRequest
	for i := range in {
		r := &in[i]
		o := resourcev1.DeviceRequest{Name: r.Name}
		if err := byName(&o.FirstAvailable, r.FirstAvailable); err != nil {
			return nil, err
		}
		if r.DeviceClassName != "" || r.Selectors != nil || r.AllocationMode != "" || r.Count != 0 || r.AdminAccess != nil ||
			r.Tolerations != nil || r.Capacity != nil || r.DerivedAttributes != nil {
			o.Exactly = &resourcev1.ExactDeviceRequest{}
			if err := byName(o.Exactly, r); err != nil {
				return nil, err
			}
		}
		out = append(out, o)
	}
	return out, nil
}

func requestsFromV1(in []resourcev1.DeviceRequest) ([]resourcev1beta1.DeviceRequest, error) {
	var out []resourcev1beta1.DeviceRequest
	for i := range in {
		o := resourcev1beta1.DeviceRequest{Name: in[i].Name}
		if err := byName(&o.FirstAvailable, in[i].FirstAvailable); err != nil {
			return nil, err
		}
		if in[i].Exactly != nil {
			if err := byName(&o, in[i].Exactly); err != nil {
				return nil, err
			}
		}
		out = append(out, o)
	}
	return out, nil
}

func sliceToV1(in *resourcev1beta1.ResourceSlice) (*resourcev1.ResourceSlice, error) {
	s := in.Spec
	in.Spec = resourcev1beta1.ResourceSliceSpec{}
	out, err := resource.Recode[*resourcev1.ResourceSlice](in)
	if err != nil {
		return nil, err
	}
	devices := s.Devices
	s.Devices, out.Spec = nil, resourcev1.ResourceSliceSpec{}
	if err := byName(&out.Spec, s); err != nil {
		return nil, err
	}
	for i := range devices {
		d := resourcev1.Device{Name: devices[i].Name}
		if devices[i].Basic != nil {
			if err := byName(&d, devices[i].Basic); err != nil {
				return nil, err
			}
		}
		out.Spec.Devices = append(out.Spec.Devices, d)
	}
	return out, nil
}

func sliceFromV1(obj *resourcev1.ResourceSlice) (*resourcev1beta1.ResourceSlice, error) {
	in := *obj
	in.Spec = resourcev1.ResourceSliceSpec{}
	out, err := resource.Recode[*resourcev1beta1.ResourceSlice](&in)
	if err != nil {
		return nil, err
	}
	s := obj.Spec
	s.Devices = nil
	if err := byName(&out.Spec, s); err != nil {
		return nil, err
	}
	for i := range obj.Spec.Devices {
		d := resourcev1beta1.Device{Name: obj.Spec.Devices[i].Name, Basic: &resourcev1beta1.BasicDevice{}}
		if err := byName(d.Basic, &obj.Spec.Devices[i]); err != nil {
			return nil, err
		}
		out.Spec.Devices = append(out.Spec.Devices, d)
	}
	return out, nil
}
