package request

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"
)

// Input is what the variables stand for in the expressions of one request. What is nil is null,
// or is not there. A value is made when the first expression asks for it: one Input is for one
// goroutine.
type Input struct {
	Object, OldObject runtime.Object // with apiVersion and kind
	Request           *admissionv1.AdmissionRequest
	Namespace         *corev1.Namespace
	Params            runtime.Object
	// Authorizer answers for User.
	Authorizer authorizer.UnconditionalAuthorizer
	User       user.Info
	// Variables is the value of the variable of that name.
	Variables ref.Val

	made map[string]any
}

var _ interpreter.Activation = (*Input)(nil)

// Parent is none: all names are here.
func (in *Input) Parent() interpreter.Activation { return nil }

// ResolveName is the value of a variable.
func (in *Input) ResolveName(name string) (any, bool) {
	if value, ok := in.made[name]; ok {
		return value, true
	}
	value, ok := in.make(name)
	if ok {
		if in.made == nil {
			in.made = map[string]any{}
		}
		in.made[name] = value
	}
	return value, ok
}

func (in *Input) make(name string) (any, bool) {
	switch name {
	case Object:
		return Value(in.Object), true
	case OldObject:
		return Value(in.OldObject), true
	case Params:
		return Value(in.Params), true
	case Request:
		return common.SchemalessTypedToVal(in.Request), true
	case Namespace:
		return common.SchemalessTypedToVal(shownNamespace(in.Namespace)), true
	case Variables:
		return in.Variables, in.Variables != nil
	}
	if in.Authorizer == nil {
		return nil, false
	}
	switch name {
	case Authorizer:
		return library.NewAuthorizerVal(in.User, in.Authorizer), true
	case ResourceAuthority:
		return library.NewResourceAuthorizerVal(in.User, in.Authorizer, asked{in.Request}), true
	}
	return nil, false
}

// Value is an object as expressions see it.
func Value(obj runtime.Object) ref.Val {
	if obj == nil {
		return types.NullValue
	}
	if doc, ok := obj.(interface{ View() map[string]any }); ok { // of a kind that is known at run time only
		return types.DefaultTypeAdapter.NativeToValue(doc.View())
	}
	return common.SchemalessTypedToVal(obj)
}

// shownNamespace leaves out what expressions do not see of a namespace.
func shownNamespace(ns *corev1.Namespace) *corev1.Namespace {
	if ns == nil {
		return nil
	}
	m := ns.ObjectMeta
	m.OwnerReferences, m.ManagedFields, m.SelfLink = nil, nil, ""
	return &corev1.Namespace{ObjectMeta: m, Spec: ns.Spec, Status: ns.Status}
}

// asked is what a request asks for, to be authorized once more: the version in which
// it was made.
type asked struct{ r *admissionv1.AdmissionRequest }

var _ library.Resource = asked{}

// GetName is the object's name.
func (a asked) GetName() string { return a.r.Name }

// GetNamespace is its namespace.
func (a asked) GetNamespace() string { return a.r.Namespace }

// GetResource is the resource that the request names.
func (a asked) GetResource() schema.GroupVersionResource {
	r := a.r.RequestResource
	if r == nil {
		r = &metav1.GroupVersionResource{}
	}
	return schema.GroupVersionResource(*r)
}

// GetSubresource is the subresource that the request names.
func (a asked) GetSubresource() string { return a.r.RequestSubResource }
