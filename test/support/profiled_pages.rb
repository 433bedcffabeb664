# frozen_string_literal: true

# Profiles of this process that are started from a page. For a WebCase.
module ProfiledPages
  def setup
    super
    skip_under_sanitizer
    @application = application
  end

  def teardown
    [Memscope::MallocProfile, Memscope::ObjectProfile].each { |profiler| profiler.stop if profiler.running? }
    super
  end

  def start(**fields)
    post({ "do" => "start", "backend" => "imports", "rate" => "4096", **fields.transform_keys(&:name) },
         path: "/profile", on: @application)
  end

  def keep
    (@kept ||= []).concat(Array.new(300) { "k" * 10_000 })
  end

  def page(path) = get(path, on: @application)
end
