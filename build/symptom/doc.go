// Package symptom knows what the texts of build programs mean where they give no type: buildah, containers/image, dnf
// and curl say it in words only.
//
//	output, error text -> Unreachable, Unauthorized, DiskFull … -> yes or no
package symptom
