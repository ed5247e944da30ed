// Package containerfile reads, checks and composes Containerfiles with the parser that buildah itself uses.
//
//	text -> File (stages, instructions, lines) -> Lint: findings | PlanAppend: append or run | Compose: stages in front
package containerfile
