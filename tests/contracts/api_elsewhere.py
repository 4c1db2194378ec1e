"""Public names that have no call in `tests.contracts.api_calls`, each with the reason.

They are a record of results, an exception, a protocol or a choice, or other tests cover them with files and
workers: a reason that begins with "test_" is the name of that test file.
"""

# Reason → package → names.
NAMES: dict[str, dict[str, str]] = {
    "a record of results": {
        "distributed": "DistributedPlan DistributedSolution PartitionedSources",
        "freshopt": "Agreement BackTest BandwidthFor Certificate Frontier LifetimePlan Pipeline Plan "
        "PlanUncertainty Replay Solution Solutions",
        "goodness_of_fit": "PoissonCheck",
        "online": "RunHistory",
        "pipelines": "NodeFreshness PipelineReplay",
        "simulation": "Measured MissedCosts Replay",
        "testing": "Instance KnownOptimum Recipe Report",
        "tools": "Exported",
    },
    "an exception": {
        "freshopt": "CertificateError FreshoptError InfeasibleProblemError ObjectiveError "
        "SolverRefusedError SourceDataError SourceDataWarning"
    },
    "a choice": {"automata": "Cost Feedback Polling Update", "freshopt": "Refresh Status"},
    "a base class or a protocol": {
        "freshopt": "Objective",
        "online": "Learner",
        "simulation": "CountingCrawler Crawler SignallingCrawler",
    },
    "no callable": {"freshopt": "__version__"},
    "the same as another": {
        "estimators": "WeeklyProfile",
        "logs": "ChangeHistory CrawlLog read_log",
        "pipelines": "Pipeline pipeline",
        "scheduling": "Schedule",
        "simulation": "World replay",
    },
    "test_request_replay": {"simulation": "compare_lifetimes"},
    "test_access_formats": {"logs": "read_requests"},
    "test_parts": {"freshopt": "show_versions"},
    "test_weekly_profile": {"estimators": "peak_hours"},
    "test_tree": {"automata": "draw to_networkx"},
    "test_poisson_check": {"goodness_of_fit": "draw interpret"},
    "test_signal_quality": {"noisy_signals": "NoisySignals"},
    "test_with_noisy_signals": {"noisy_signals": "SignalWaits"},
    "test_expected_age": {"noisy_signals": "AgeThresholds"},
    "test_formats": {
        "tools": "CacheControl ChangeDetection Crontab Dns ExternalSecrets FreshRss Miniflux Nginx Nutch "
        "Redis StormCrawler"
    },
    "test_crontab": {"tools": "write_icalendar"},
    "test_dbt": {"tools": "Dbt DbtJobs read_dbt"},
    "test_templates": {"tools": "PgCron TextTemplate"},
    "test_read_crawls": {"freshopt": "read_log", "logs": "read_history"},
    "test_read_crawlers": {"tools": "read_changedetection read_nutch"},
    "test_git": {"tools": "read_git"},
    "test_import": {"tools": "read_sitemap read_wayback"},
    "test_validation": {"testing": "validate"},
    "test_loading": {"freshopt": "warm"},
    "test_solving": {"distributed": "plan solve"},
}
ELSEWHERE = {
    reason: frozenset(f"{package}.{name}" for package, names in of.items() for name in names.split())
    for reason, of in NAMES.items()
}
