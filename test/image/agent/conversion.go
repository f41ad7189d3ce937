package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"strings"
)

// conversionReview asks for, and brings, objects of another version. Those there
// are of it differ in their version alone.
type conversionReview struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Request    *conversionRequest  `json:"request,omitempty"`
	Response   *conversionResponse `json:"response,omitempty"`
}

type conversionRequest struct {
	UID               string           `json:"uid"`
	DesiredAPIVersion string           `json:"desiredAPIVersion"`
	Objects           []map[string]any `json:"objects"`
}

type conversionResponse struct {
	UID              string           `json:"uid"`
	ConvertedObjects []map[string]any `json:"convertedObjects"`
	Result           conversionResult `json:"result"`
}

type conversionResult struct {
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
}

// conversionWebhook converts custom resources of stable.example.com.
func conversionWebhook(args []string) int {
	var o tlsOptions
	flags("crd-conversion-webhook", args, o.define)
	return o.serve(conversionHandler())
}

func conversionHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	mux.HandleFunc("/crdconvert", func(w http.ResponseWriter, r *http.Request) {
		var review conversionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil || review.Kind != "ConversionReview" {
			http.Error(w, fmt.Sprintf("no ConversionReview with a request: %v", err), http.StatusBadRequest)
			return
		}
		review.Response = convertAll(review.Request)
		log.Printf("converted %d objects to %s: %s", len(review.Request.Objects), review.Request.DesiredAPIVersion, review.Response.Result.Status)
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			log.Printf("answer: %v", err)
		}
	})
	return mux
}

func convertAll(req *conversionRequest) *conversionResponse {
	out := &conversionResponse{UID: req.UID, ConvertedObjects: []map[string]any{}, Result: conversionResult{Status: "Success"}}
	for _, obj := range req.Objects {
		converted, err := convert(obj, req.DesiredAPIVersion)
		if err != nil {
			return &conversionResponse{UID: req.UID, ConvertedObjects: []map[string]any{}, Result: conversionResult{"Failure", err.Error()}}
		}
		out.ConvertedObjects = append(out.ConvertedObjects, converted)
	}
	return out
}

// convert turns hostPort of version v1 into host and port of v2, and back.
func convert(obj map[string]any, to string) (map[string]any, error) {
	const v1, v2 = "stable.example.com/v1", "stable.example.com/v2"
	from, _ := obj["apiVersion"].(string)
	out := maps.Clone(obj)
	out["apiVersion"] = to
	switch {
	case from == to:
		return nil, fmt.Errorf("conversion from a version to itself should not call the webhook: %s", to)
	case from == v1 && to == v2:
		value, ok := obj["hostPort"]
		if !ok {
			return out, nil
		}
		text, _ := value.(string)
		parts := strings.Split(text, ":")
		if len(parts) != 2 {
			return nil, fmt.Errorf("invalid hostPort value `%v`", value)
		}
		delete(out, "hostPort")
		out["host"], out["port"] = parts[0], parts[1]
	case from == v2 && to == v1:
		host, hasHost := obj["host"].(string)
		port, hasPort := obj["port"].(string)
		delete(out, "host")
		delete(out, "port")
		if hasHost || hasPort {
			out["hostPort"] = host + ":" + port
		}
	case from == v1 || from == v2:
		return nil, fmt.Errorf("unexpected conversion version %q", to)
	default:
		return nil, fmt.Errorf("unexpected conversion version %q", from)
	}
	return out, nil
}
