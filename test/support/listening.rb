# frozen_string_literal: true

require "fileutils"
require "socket"
require "timeout"
require "tmpdir"
require_relative "child_process"

# Starts processes that listen, and talks to their sockets as a stranger would.
module Listening
  # The longest wait for anything here, in seconds, on a loaded machine.
  PATIENCE = ChildProcess::PATIENCE

  # A process that runs a script, and then waits until its standard input is closed.
  Listening = Struct.new(:pid, :input, :output, keyword_init: true) do
    # The next line that the script prints.
    def gets = Timeout.timeout(PATIENCE) { output.gets&.chomp }

    def tell(line) = input.puts(line)

    def stop
      [input, output].each(&:close)
      Process.wait2(pid).last
    end
  end

  # These come first: super may skip the test, and teardown needs them.
  def setup
    @directory = Dir.mktmpdir("listen")
    @started = []
    super
  end

  def teardown
    @started.each do |process|
      Process.kill(:KILL, process.pid)
      process.stop
    rescue SystemCallError, IOError
      nil
    end
    FileUtils.remove_entry(@directory, true) # a process that was told to end may still remove its own file
    super
  end

  # Appends to the script a loop that evaluates each line that it is sent, and prints the result.
  def start(script = "", env: {}, requires: ["memscope"], preload: nil, uid: nil)
    command = [*ChildProcess.ruby, *requires.map { |name| "-r#{name}" },
               "-e", "$stdout.sync = true; #{script}; puts :ready; " \
                     "while (line = gets); puts eval(line).inspect; end"]
    command = ["setpriv", "--reuid=#{uid}", "--regid=#{uid}", "--clear-groups", *command] if uid
    theirs, input = IO.pipe
    output, written = IO.pipe
    pid = Process.spawn(environment.merge("LD_PRELOAD" => preloads(preload), **env), *command,
                        in: theirs, out: written, err: File.join(@directory, "err"))
    [theirs, written].each(&:close)
    process = Listening.new(pid: pid, input: input, output: output)
    @started << process

    assert_equal "ready", process.gets, File.read(File.join(@directory, "err"))
    process
  end

  # A process that listens in a directory of the test's.
  def listening(script = "", env: {}, **options)
    start(script, env: { "MEMSCOPE_LISTEN" => "1", **env }, **options)
  end

  def preloads(given) = [ChildProcess::SANITIZER, given].compact.then { |all| all.join(":") unless all.empty? }

  def environment
    given = { "XDG_RUNTIME_DIR" => nil, "MEMSCOPE_SOCKET_DIRECTORY" => sockets, "MEMSCOPE_LISTEN" => nil }
    ChildProcess.environment(nil, given)
  end

  def sockets = File.join(@directory, "sockets")

  def socket_of(process) = File.join(sockets, "#{process.pid}.sock")

  def client(process, **options) = Memscope::Client.new(process.pid, timeout: PATIENCE, **options)

  # Sends bytes, and reads the answer until the other side closes.
  def raw(process, bytes)
    UNIXSocket.open(socket_of(process)) do |socket|
      socket.write(bytes)
      Timeout.timeout(PATIENCE) { socket.read }
    end
  end

  # Fills the backlog of a process that does not accept.
  #
  # @return [Array<Socket>]
  def connect_until_full(process)
    waiting = []
    loop { (waiting << Socket.new(:UNIX, :STREAM)).last.connect_nonblock(Socket.sockaddr_un(socket_of(process))) }
  rescue Errno::EAGAIN
    waiting
  end

  def skip_unless_root
    skip "only root can become another user" unless Process.euid.zero?
  end

  # At boot, memscope prints why it does not listen, and the program continues. A call raises.
  def assert_refused(message, **environment)
    script = "begin; Memscope.listen(path: ENV['MEMSCOPE_LISTEN'][%r{\\A/.*}]); " \
             "rescue Memscope::Listener::Refused, Memscope::Invalid => e; puts e.message; end"
    env = { **self.environment, "MEMSCOPE_LISTEN" => "1", **environment }
    ran = ChildProcess.run(script, requires: ["memscope"], env: env)

    assert_operator message, :===, ran.out.chomp, ran
    assert_match(/\Amemscope: MEMSCOPE_LISTEN: this process \(pid \d+\) does not listen: /, ran.err)
    assert_predicate ran, :success?
  end
end
