// Package limitranger is the plugin LimitRanger: what the LimitRanges of a
// namespace say of its pods and claims.
package limitranger
