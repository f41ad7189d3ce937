package openapi

import "net/http"

// Media types of bodies, in the order in which they are documented.
var (
	answerTypes = []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}
	streamTypes = []string{"application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"}
	patchTypes  = []string{
		"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml",
	}
	// Those of kinds without a Go type.
	customTypes      = answerTypes[:2]
	customPatchTypes = []string{"application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"}
)

// types are the media types of what an operation at the path is sent and answers.
func (p *path) types(o *operation) (consumes, produces []string) {
	consumes, produces = []string{"*/*"}, answerTypes
	switch {
	case p.media.custom:
		consumes, produces = customTypes, customTypes
	case o.action == "list", o.action == "watch", o.action == "watchlist":
		produces = append(append([]string(nil), answerTypes...), streamTypes...)
	}
	switch {
	case o.action == "patch" && p.media.custom:
		consumes = customPatchTypes
	case o.action == "patch":
		consumes = patchTypes
	}
	if p.media.consumes != nil {
		consumes = p.media.consumes
	}
	if p.media.produces != nil {
		produces = p.media.produces
	}
	return consumes, produces
}

// codes are the codes of good answers to an operation.
func (p *path) codes(o *operation) []int {
	switch o.action {
	case "post":
		return []int{http.StatusOK, http.StatusCreated, http.StatusAccepted}
	case "delete":
		return []int{http.StatusOK, http.StatusAccepted}
	case "patch":
		if !p.media.custom {
			return []int{http.StatusOK, http.StatusCreated}
		}
	case "put":
		return []int{http.StatusOK, http.StatusCreated}
	}
	return []int{http.StatusOK}
}
