package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// As much of the API's types as the webhooks look at: the whole of them would
// make every image a third larger.
type (
	admissionReview struct {
		APIVersion string             `json:"apiVersion"`
		Kind       string             `json:"kind"`
		Request    *admissionRequest  `json:"request,omitempty"`
		Response   *admissionResponse `json:"response,omitempty"`
	}
	admissionRequest struct {
		UID         string          `json:"uid"`
		Resource    groupResource   `json:"resource"`
		SubResource string          `json:"subResource"`
		Namespace   string          `json:"namespace"`
		Name        string          `json:"name"`
		Operation   string          `json:"operation"`
		Object      json.RawMessage `json:"object"`
		OldObject   json.RawMessage `json:"oldObject"`
	}
	groupResource struct {
		Group    string `json:"group"`
		Version  string `json:"version"`
		Resource string `json:"resource"`
	}
	admissionResponse struct {
		UID       string   `json:"uid"`
		Allowed   bool     `json:"allowed"`
		Status    *refusal `json:"status,omitempty"`
		Patch     []byte   `json:"patch,omitempty"`
		PatchType string   `json:"patchType,omitempty"`
	}
	refusal struct {
		Status  string `json:"status,omitempty"`
		Message string `json:"message,omitempty"`
		Reason  string `json:"reason,omitempty"`
		Code    int    `json:"code,omitempty"`
	}
	container struct {
		Name string `json:"name"`
	}
	object struct {
		Metadata struct {
			Name   string            `json:"name"`
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Data map[string]string `json:"data"`
		Spec struct {
			InitContainers []container `json:"initContainers"`
			Containers     []container `json:"containers"`
		} `json:"spec"`
	}
)

// verdict is what a webhook thinks of a request. It is allowed if there is no
// refusal; patch is a JSON patch or empty.
type verdict struct {
	refusal *refusal
	patch   string
}

// webhook serves admission webhooks, each under a path of its own.
func webhook(args []string) int {
	var o tlsOptions
	var sidecar string
	flags("webhook", args, func(f *pflag.FlagSet) {
		o.define(f)
		f.StringVar(&sidecar, "sidecar-image", "", "image of the container that /mutating-pods-sidecar adds")
	})
	return o.serve(webhookHandler(sidecar))
}

// tlsOptions say how to serve HTTPS.
type tlsOptions struct {
	cert, key string
	port      int
}

func (o *tlsOptions) define(f *pflag.FlagSet) {
	f.StringVar(&o.cert, "tls-cert-file", "", "certificate, with that of its authority behind it")
	f.StringVar(&o.key, "tls-private-key-file", "", "private key of the certificate")
	f.IntVar(&o.port, "port", 443, "port to serve on")
}

func (o *tlsOptions) serve(h http.Handler) int {
	log.Printf("serving on port %d", o.port)
	fail("%v", http.ListenAndServeTLS(fmt.Sprintf(":%d", o.port), o.cert, o.key, h))
	return 1
}

func webhookHandler(sidecar string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	for path, judge := range map[string]func(*http.Request, *admissionRequest) (verdict, error){
		"/always-deny":              alwaysDeny,
		"/always-allow-delay-5s":    allowLate,
		"/add-label":                addLabel,
		"/pods":                     judgePod,
		"/pods/attach":              judgeAttach,
		"/mutating-pods":            addInitContainer,
		"/mutating-pods-sidecar":    addSidecar(sidecar),
		"/configmaps":               judgeData("the configmap contains unwanted key and value", "the configmap cannot be deleted because it contains unwanted key and value"),
		"/custom-resource":          judgeData("the custom resource contains unwanted data", "the custom resource cannot be deleted because it contains unwanted key and value"),
		"/mutating-configmaps":      addStage,
		"/mutating-custom-resource": addStage,
		"/crd":                      judgeDefinition,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { review(w, r, judge) })
	}
	return mux
}

// review answers an AdmissionReview of any version: those there are differ in
// their version alone.
func review(w http.ResponseWriter, r *http.Request, judge func(*http.Request, *admissionRequest) (verdict, error)) {
	var in admissionReview
	if t := r.Header.Get("Content-Type"); t != "application/json" {
		http.Error(w, "content type "+t+" is not application/json", http.StatusUnsupportedMediaType)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Request == nil || in.Kind != "AdmissionReview" {
		http.Error(w, fmt.Sprintf("no AdmissionReview with a request: %v", err), http.StatusBadRequest)
		return
	}
	v, err := judge(r, in.Request)
	if err != nil {
		v.refusal = &refusal{Message: err.Error()}
	}
	out := admissionReview{APIVersion: in.APIVersion, Kind: in.Kind, Response: &admissionResponse{
		UID: in.Request.UID, Allowed: v.refusal == nil, Status: v.refusal,
	}}
	if v.patch != "" {
		out.Response.Patch, out.Response.PatchType = []byte(v.patch), "JSONPatch"
	}
	log.Printf("%s %s %s/%s: allowed %v", r.URL.Path, in.Request.Operation, in.Request.Namespace, in.Request.Name, out.Response.Allowed)
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(out); err != nil {
		log.Printf("answer: %v", err)
	}
}

func refuse(message string) verdict { return verdict{refusal: &refusal{Message: message}} }

func alwaysDeny(*http.Request, *admissionRequest) (verdict, error) {
	return refuse("this webhook denies all requests"), nil
}

func allowLate(r *http.Request, _ *admissionRequest) (verdict, error) {
	select {
	case <-time.After(5 * time.Second):
	case <-r.Context().Done():
	}
	return verdict{}, nil
}

// subject is the object that a request is about: the old one if it goes.
func subject(req *admissionRequest) (o object, err error) {
	raw := req.Object
	if req.Operation == "DELETE" {
		raw = req.OldObject
	}
	err = json.Unmarshal(raw, &o)
	return o, err
}

func addLabel(_ *http.Request, req *admissionRequest) (verdict, error) {
	o, err := subject(req)
	value, ok := o.Metadata.Labels["added-label"]
	switch {
	case err != nil || value == "yes":
		return verdict{}, err
	case len(o.Metadata.Labels) == 0:
		return verdict{patch: `[{"op": "add", "path": "/metadata/labels", "value": {"added-label": "yes"}}]`}, nil
	case !ok:
		return verdict{patch: `[{"op": "add", "path": "/metadata/labels/added-label", "value": "yes"}]`}, nil
	}
	return verdict{patch: `[{"op": "replace", "path": "/metadata/labels/added-label", "value": "yes"}]`}, nil
}

const testKey, disallowed = "webhook-e2e-test", "webhook-disallow"

func podOf(req *admissionRequest) (pod object, err error) {
	if req.Resource != (groupResource{Version: "v1", Resource: "pods"}) {
		return pod, errors.New("expect resource to be pods")
	}
	err = json.Unmarshal(req.Object, &pod)
	return pod, err
}

func judgePod(r *http.Request, req *admissionRequest) (verdict, error) {
	pod, err := podOf(req)
	if err != nil {
		return verdict{}, err
	}
	var wrong []string
	switch pod.Metadata.Labels[testKey] {
	case disallowed:
		wrong = append(wrong, "the pod contains unwanted label;")
	case "wait-forever":
		<-r.Context().Done()
		wrong = append(wrong, "the pod response should not be sent;")
	}
	for i := range pod.Spec.Containers {
		if strings.Contains(pod.Spec.Containers[i].Name, disallowed) {
			wrong = append(wrong, "the pod contains unwanted container name;")
		}
	}
	if len(wrong) == 0 {
		return verdict{}, nil
	}
	return refuse(strings.Join(wrong, " ")), nil
}

func judgeAttach(_ *http.Request, req *admissionRequest) (verdict, error) {
	var o struct {
		Stdin     bool   `json:"stdin"`
		Container string `json:"container"`
	}
	switch {
	case req.Name != "to-be-attached-pod":
		return verdict{}, nil
	case req.SubResource != "attach":
		return verdict{}, fmt.Errorf("expect subresource to be attach, got %s", req.SubResource)
	}
	if err := json.Unmarshal(req.Object, &o); err != nil || !o.Stdin || o.Container != "container1" {
		return verdict{}, err
	}
	return refuse("attaching to pod 'to-be-attached-pod' is not allowed"), nil
}

func named(name string) func(container) bool {
	return func(c container) bool { return c.Name == name }
}

func addInitContainer(_ *http.Request, req *admissionRequest) (verdict, error) {
	const name = "webhook-added-init-container"
	pod, err := podOf(req)
	if err != nil || pod.Metadata.Name != "webhook-to-be-mutated" || slices.ContainsFunc(pod.Spec.InitContainers, named(name)) {
		return verdict{}, err
	}
	return verdict{patch: `[{"op": "add", "path": "/spec/initContainers", "value": [{"image": "webhook-added-image", "name": "` + name + `", "resources": {}}]}]`}, nil
}

func addSidecar(image string) func(*http.Request, *admissionRequest) (verdict, error) {
	const name = "webhook-added-sidecar"
	return func(_ *http.Request, req *admissionRequest) (verdict, error) {
		if image == "" {
			return verdict{refusal: &refusal{Status: "Failure", Code: http.StatusInternalServerError, Message: "No image specified by the sidecar-image parameter"}}, nil
		}
		pod, err := podOf(req)
		if err != nil || slices.ContainsFunc(pod.Spec.Containers, named(name)) {
			return verdict{}, err
		}
		return verdict{patch: fmt.Sprintf(`[{"op": "add", "path": "/spec/containers/-", "value": {"image": %q, "name": %q, "resources": {}}}]`, image, name)}, nil
	}
}

// judgeData refuses writes, and deletions, of objects by their data.
func judgeData(unwanted, kept string) func(*http.Request, *admissionRequest) (verdict, error) {
	return func(_ *http.Request, req *admissionRequest) (verdict, error) {
		o, err := subject(req)
		if err != nil {
			return verdict{}, err
		}
		value, deleted := o.Data[testKey], req.Operation == "DELETE"
		switch {
		case value == disallowed && (req.Operation == "CREATE" || req.Operation == "UPDATE"):
			return verdict{refusal: &refusal{Reason: unwanted}}, nil
		case value == "webhook-nondeletable" && deleted:
			return verdict{refusal: &refusal{Reason: kept}}, nil
		}
		return verdict{}, nil
	}
}

// addStage notes in an object's data how often it came by.
func addStage(_ *http.Request, req *admissionRequest) (v verdict, err error) {
	o, err := subject(req)
	if o.Data["mutation-start"] == "yes" {
		v.patch = `[{"op": "add", "path": "/data/mutation-stage-1", "value": "yes"}]`
	}
	if o.Data["mutation-stage-1"] == "yes" {
		v.patch = `[{"op": "add", "path": "/data/mutation-stage-2", "value": "yes"}]`
	}
	return v, err
}

func judgeDefinition(_ *http.Request, req *admissionRequest) (verdict, error) {
	if req.Resource.Group != "apiextensions.k8s.io" || req.Resource.Resource != "customresourcedefinitions" {
		return verdict{}, fmt.Errorf("expect resource to be customresourcedefinitions but got %v", req.Resource)
	}
	o, err := subject(req)
	if err != nil || o.Metadata.Labels[testKey] != disallowed {
		return verdict{}, err
	}
	return refuse("the crd contains unwanted label"), nil
}
