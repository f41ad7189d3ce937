// Package webhook asks a server of others who may do what, by SubjectAccessReviews that are
// posted to it, as the administrator has configured.
//
// Answers are remembered for a while, as many of them as fit in a bounded memory: by a digest
// of the question, so that long questions take no more. What a webhook that does not answer
// means is for the configuration to say.
package webhook
