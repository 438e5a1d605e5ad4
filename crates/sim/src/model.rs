//! All numbers of the model, and changes to the fitted ones.

use crate::hypervisor::Hypervisor;
use crate::machine::{Error, Machine};
use crate::workload::jobs::Profile;

/// The machines and what jobs do on them.
#[derive(Clone, Debug)]
pub struct Model {
    /// The machines.
    pub machines: Vec<Machine>,
    /// The hypervisors.
    pub hypervisors: Vec<Hypervisor>,
    /// The profiles.
    pub profiles: Vec<Profile>,
}

impl Model {
    /// The parts that come with Poundlock.
    pub fn known() -> Model {
        Model { machines: Machine::known(), hypervisors: Hypervisor::known(), profiles: Profile::known() }
    }

    /// The numbers that were fitted, by name: a machine's, `numaconnect-512/load_share`, or a profile's,
    /// `aim7-3.7/process.computes`.
    pub fn fitted(&self) -> Vec<(String, f64)> {
        let of_machines = self.machines.iter().flat_map(|machine| {
            let fitted = machine.sources().into_iter().filter(|(_, _, source)| source.starts_with("fitted"));
            fitted.map(|(name, value, _)| (format!("{}/{name}", machine.name()), value)).collect::<Vec<_>>()
        });
        let of_hypervisors = self.hypervisors.iter().flat_map(|hypervisor| {
            let fitted =
                hypervisor.sources().into_iter().filter(|(_, _, source)| source.starts_with("fitted"));
            fitted
                .map(|(name, value, _)| (format!("{}/{name}", hypervisor.name()), value))
                .collect::<Vec<_>>()
        });
        let of_profiles = self.profiles.iter().flat_map(|profile| {
            let fitted = profile.fitted().into_iter();
            fitted.map(|(name, value)| (format!("{}/{name}", profile.name()), value)).collect::<Vec<_>>()
        });
        of_machines.chain(of_hypervisors).chain(of_profiles).collect()
    }

    /// The same with another value of a number.
    ///
    /// # Errors
    /// If it makes no sense.
    pub fn with(&self, name: &str, value: f64) -> Result<Model, Error> {
        let mut model = self.clone();
        if let Some((owner, name)) = name.split_once('/') {
            for machine in model.machines.iter_mut().filter(|machine| machine.name() == owner) {
                *machine = machine.with(name, value)?;
            }
            for hypervisor in model.hypervisors.iter_mut().filter(|hypervisor| hypervisor.name() == owner) {
                *hypervisor = hypervisor.with(name, value)?;
            }
            for profile in model.profiles.iter_mut().filter(|profile| profile.name() == owner) {
                *profile = profile.with(name, value);
            }
        }
        Ok(model)
    }
}
