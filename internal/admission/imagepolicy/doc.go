// Package imagepolicy is the plugin ImagePolicyWebhook: a server of the administrator's is asked
// by an ImageReview whether pods may run their images. What it answers is remembered for a while, by
// a digest of the question.
package imagepolicy
