package request

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// Names of the variables of expressions.
const (
	Object            = "object"
	OldObject         = "oldObject"
	Request           = "request"
	Namespace         = "namespaceObject"
	Params            = "params"
	Authorizer        = "authorizer"
	ResourceAuthority = "authorizer.requestResource"
	Variables         = "variables"
)

// Uses are the variables that expressions may use beside object, oldObject, request and
// namespaceObject, which all may.
type Uses struct {
	Params     bool
	Authorizer bool // authorizer, and authorizer.requestResource
}

// environments are made when they are asked for, once each.
var environments = func() (all [4]func() *environment.EnvSet) {
	for i := range all {
		all[i] = sync.OnceValue(func() *environment.EnvSet { return build(Uses{Params: i&1 != 0, Authorizer: i&2 != 0}) })
	}
	return all
}()

// Environment is what expressions are compiled in that use no more than u.
func Environment(u Uses) *environment.EnvSet {
	i := 0
	if u.Params {
		i |= 1
	}
	if u.Authorizer {
		i |= 2
	}
	return environments[i]()
}

// build panics if the declarations here cannot be: a bug of ours, which the first test finds.
func build(u Uses) *environment.EnvSet {
	request, namespace := requestType(), namespaceType()
	variables := []cel.EnvOption{
		cel.Variable(Object, cel.DynType), cel.Variable(OldObject, cel.DynType),
		cel.Variable(Request, request.CelType()), cel.Variable(Namespace, namespace.CelType()),
	}
	if u.Params {
		variables = append(variables, cel.Variable(Params, cel.DynType))
	}
	if u.Authorizer {
		variables = append(variables, cel.Variable(Authorizer, library.AuthorizerType), cel.Variable(ResourceAuthority, library.ResourceCheckType))
	}
	env, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), // they have been there in all releases with expressions
		EnvOptions:        variables,
		DeclTypes:         []*apicel.DeclType{namespace, request},
	}, environment.StrictCostOpt)
	if err != nil {
		panic(fmt.Sprintf("environment of expressions about requests, %+v: %v", u, err))
	}
	return env
}

// Types of fields, and of lists and maps of them.
var (
	text   = apicel.StringType
	texts  = apicel.NewListType(text, -1)
	byText = apicel.NewMapType(text, text, -1)
)

// fields are the fields of a type: required ones by their types, and others.
type fields struct{ required, optional map[string]*apicel.DeclType }

func object(name string, f fields) *apicel.DeclType {
	all := map[string]*apicel.DeclField{}
	for field, t := range f.required {
		all[field] = apicel.NewDeclField(field, t, true, nil, nil)
	}
	for field, t := range f.optional {
		all[field] = apicel.NewDeclField(field, t, false, nil, nil)
	}
	return apicel.NewObjectType(name, all)
}

// requestType is what expressions see of a request: an AdmissionRequest without uid,
// object and oldObject.
func requestType() *apicel.DeclType {
	kind := object("kubernetes.GroupVersionKind", fields{required: map[string]*apicel.DeclType{"group": text, "version": text, "kind": text}})
	resource := object("kubernetes.GroupVersionResource", fields{required: map[string]*apicel.DeclType{"group": text, "version": text, "resource": text}})
	user := object("kubernetes.UserInfo", fields{optional: map[string]*apicel.DeclType{
		"username": text, "uid": text, "groups": texts, "extra": apicel.NewMapType(text, texts, -1),
	}})
	return object("kubernetes.AdmissionRequest", fields{
		required: map[string]*apicel.DeclType{
			"kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource, "name": text, "operation": text, "userInfo": user,
		},
		optional: map[string]*apicel.DeclType{
			"subResource": text, "requestSubResource": text, "namespace": text, "dryRun": apicel.BoolType, "options": apicel.DynType,
		},
	})
}

// namespaceType is what expressions see of the namespace that an object is in: not its
// owners nor who manages its fields.
func namespaceType() *apicel.DeclType {
	time, number := apicel.TimestampType, apicel.IntType
	condition := object("kubernetes.NamespaceCondition", fields{required: map[string]*apicel.DeclType{
		"status": text, "type": text, "lastTransitionTime": time, "message": text, "reason": text,
	}})
	return object("kubernetes.Namespace", fields{required: map[string]*apicel.DeclType{
		"spec":   object("kubernetes.NamespaceSpec", fields{required: map[string]*apicel.DeclType{"finalizers": texts}}),
		"status": object("kubernetes.NamespaceStatus", fields{required: map[string]*apicel.DeclType{"conditions": apicel.NewListType(condition, -1), "phase": text}}),
		"metadata": object("kubernetes.NamespaceMetadata", fields{required: map[string]*apicel.DeclType{
			"name": text, "generateName": text, "namespace": text, "labels": byText, "annotations": byText, "UID": text,
			"creationTimestamp": time, "deletionGracePeriodSeconds": number, "deletionTimestamp": time, "generation": number,
			"resourceVersion": text, "finalizers": texts,
		}}),
	}})
}
