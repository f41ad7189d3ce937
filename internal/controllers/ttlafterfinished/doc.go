// Package ttlafterfinished deletes Jobs, and their pods with them, when they have
// been over for as long as they are to be kept.
package ttlafterfinished
