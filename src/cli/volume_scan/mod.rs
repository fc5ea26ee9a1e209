//! Scanning a whole volume: the slices that metadata refers to, and the objects in the store.
//!
//! Memory is bounded: slices are in a table of 16 bytes each. A volume with more slices than the
//! table may hold is scanned in several passes, each with a part of the slice ids. Objects are
//! never held, only counted.

pub mod objects;
pub mod passes;
pub mod slice_table;
pub mod slices;

use std::sync::Arc;

use crate::chunk::{Compression, Layout};
use crate::meta::Meta;
use crate::meta::record::Setting;
use crate::object::{self, ObjectStore};
use crate::volume::storage::{Overrides, spec};
use crate::volume::{compression, layout};

/// A volume with its objects.
pub struct ScannedVolume {
    pub meta: Arc<Meta>,
    pub setting: Arc<Setting>,
    pub objects: Arc<dyn ObjectStore>,
    pub layout: Layout,
    pub compression: Compression,
}

impl ScannedVolume {
    pub fn open(meta: Arc<Meta>) -> anyhow::Result<Self> {
        let setting = meta.context().setting();
        let objects = object::open(&spec(&setting, &Overrides::from_environment()?)?)?;
        let (layout, compression) = (layout(&setting)?, compression(&setting)?);
        Ok(Self { meta, setting, objects, layout, compression })
    }

    /// Opens the objects once more, for reads whose failure is an answer: with one retry.
    pub fn impatient_objects(&self) -> anyhow::Result<Arc<dyn ObjectStore>> {
        let overrides = Overrides { retries: Some(1), ..Overrides::from_environment()? };
        Ok(object::open(&spec(&self.setting, &overrides)?)?)
    }
}
