//! Operations: what each file-system operation means, one file each, for every engine.
