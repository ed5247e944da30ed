// Package validation says without a cluster what the API server would say of an object: the schemas and CEL rules of
// the real CRDs.
//
//	object as JSON -> prune, default (as on create) -> metadata, schema, list types, CEL rules -> findings
package validation
